"""Valid requests name a model that is there and ask for short answers, so that they reach the model server. A line of NDJSON is read."""

import json

import schemathesis

BOUNDS = {
    "/v1/chat/completions": "max_tokens",
    "/v1/completions": "max_tokens",
    "/v1/messages": "max_tokens",
    "/v1/responses": "max_output_tokens",
}


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta is None or not case.meta.generation.mode.is_positive or not isinstance(case.body, dict):
        return
    path = case.operation.path
    if "model" in case.body:
        case.body["model"] = "embed" if path.endswith(("/embed", "/embeddings")) else "plain"
    if path in BOUNDS:
        case.body[BOUNDS[path]] = 8
        case.body.pop("max_completion_tokens", None)
    elif path in ("/api/chat", "/api/generate"):
        case.body["options"] = {**(case.body.get("options") or {}), "num_predict": 8}


@schemathesis.deserializer("application/x-ndjson")
def last_line(context, response):
    return json.loads(response.content.splitlines()[-1])


@schemathesis.hook
def filter_failure(context, failure, case, response):
    """A seed near a bound of 64 bits is read as the nearest double. A method that is not served is a 403, as a path is: the specification wants it."""
    rounded = failure.code == "ST201" and "seed: Value" in failure.message
    return not (rounded or (failure.code == "ST204" and response.status_code == 403))
