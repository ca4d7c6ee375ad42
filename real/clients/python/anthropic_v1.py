import anthropic

from matrix import *

FUNCTION = TOOL["function"]
TOOLS = [{"name": FUNCTION["name"], "description": FUNCTION["description"], "input_schema": FUNCTION["parameters"]}]


def client(key=KEY):
    return anthropic.Anthropic(base_url=URL, api_key=key, max_retries=0, timeout=60)


def create(key=KEY, model="plain", messages=MESSAGES, max_tokens=8, **more):
    return client(key).messages.create(model=model, messages=messages, max_tokens=max_tokens, **more)


@case("chat")
def _():
    message = create()
    expect(message.content[0].text and message.usage.output_tokens > 0, "no text or usage")
    expect(client().messages.count_tokens(model="plain", messages=MESSAGES).input_tokens > 0, "no count")


@case("stream")
def _():
    with client().messages.stream(model="plain", messages=MESSAGES, max_tokens=8) as stream:
        said = "".join(stream.text_stream)
        message = stream.get_final_message()
    expect(said == message.content[0].text and message.usage.output_tokens > 0, "another text or no usage")


@case("tools")
def _():
    message = create(model="tools", tools=TOOLS, max_tokens=60)
    call = next(block for block in message.content if block.type == "tool_use")
    expect(message.stop_reason == "tool_use" and call.input == {"city": "Paris"}, "no call")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    history = [*MESSAGES, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
    expect(create(model="tools", tools=TOOLS, messages=history).type == "message", "no answer to the result")


@case("structured")
def _():
    message = create(max_tokens=64, output_config={"format": {"type": "json_schema", "schema": SCHEMA}})
    expect(json.loads(message.content[0].text)["kind"] in "ab", "not the schema")


@case("embeddings")
def _():
    raise NotOffered("Anthropic has no embeddings")


@case("list")
def _():
    raise NotOffered("it lists models in Anthropic's shape")


@case("abort")
def _():
    with create(model="slow", max_tokens=900, stream=True) as stream:
        next(iter(stream))


@case("401")
def _():
    refusal(lambda: create(key=WRONG_KEY), anthropic.AuthenticationError)


@case("403")
def _():
    refusal(lambda: create(model=FORBIDDEN_MODEL), anthropic.PermissionDeniedError)


@case("413")
def _():
    too_long = [{"role": "user", "content": TOO_LONG}]
    expect(refusal(lambda: create(messages=too_long), anthropic.APIStatusError).status_code == 413, "another status")


@case("429")
def _():
    error = refusal(lambda: create(key=LIMITED_KEY), anthropic.RateLimitError)
    expect(error.body["error"]["type"] == "rate_limit_error", "another error")


@case("retry-after")
def _():
    error = refusal(lambda: create(key=LIMITED_KEY), anthropic.RateLimitError)
    expect(int(error.response.headers["retry-after"]) >= 1, "no Retry-After")


run("anthropic", "anthropic")
