import openai
from smolagents import ChatMessage, OpenAIServerModel, Tool

from matrix import *


class Weather(Tool):
    name = "get_weather"
    description = "The weather in a city"
    inputs = {"city": {"type": "string", "description": "a city"}}
    output_type = "string"

    def forward(self, city: str) -> str:
        return "sunny"


def model(name="plain", key=KEY, tokens=8):
    options = {"max_retries": 0, "timeout": 60}
    return OpenAIServerModel(name, api_base=f"{URL}/v1", api_key=key, client_kwargs=options, max_tokens=tokens, retry=False)


def asked(text=TEXT):
    return [ChatMessage(role="user", content=[{"type": "text", "text": text}])]


def generate(text=TEXT, **more):
    return model(**more).generate(asked(text))


@case("chat")
def _():
    answer = generate()
    expect(answer.content and answer.token_usage.output_tokens > 0, "no text or usage")


@case("stream")
def _():
    parts = list(model().generate_stream(asked()))
    expect(len(parts) > 1 and any(part.token_usage and part.token_usage.output_tokens > 0 for part in parts), "no usage")


@case("tools")
def _():
    answer = model("tools", tokens=60).generate(asked(), tools_to_call_from=[Weather()])
    arguments = answer.tool_calls[0].function.arguments
    expect((json.loads(arguments) if isinstance(arguments, str) else arguments) == {"city": "Paris"}, "no call")


@case("structured")
def _():
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
    answer = model(tokens=60).generate(asked(), response_format=form)
    expect(json.loads(answer.content)["kind"] in "ab", "not the schema")


@case("embeddings")
def _():
    raise NotOffered("it has none")


@case("list")
def _():
    raise NotOffered("it lists no models")


@case("abort")
def _():
    stream = model("slow", tokens=900).generate_stream(asked())
    next(stream)
    stream.close()


def status(**more):
    return refusal(lambda: generate(**more), openai.APIStatusError).status_code


@case("401")
def _():
    expect(status(key=WRONG_KEY) == 401, "another status")


@case("403")
def _():
    expect(status(name=FORBIDDEN_MODEL) == 403, "another status")


@case("413")
def _():
    expect(status(text=TOO_LONG) == 413, "another status")


@case("429")
def _():
    expect(status(key=LIMITED_KEY) == 429, "another status")


@case("retry-after")
def _():
    error = refusal(lambda: generate(key=LIMITED_KEY), openai.APIStatusError)
    expect(int(error.response.headers["retry-after"]) >= 1, "no Retry-After")


run("smolagents", "smolagents")
