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
