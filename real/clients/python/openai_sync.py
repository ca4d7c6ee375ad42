from typing import Literal

import openai
from pydantic import BaseModel

from matrix import *


class Answer(BaseModel):
    kind: Literal["a", "b"]


def client(key=KEY):
    return openai.OpenAI(base_url=f"{URL}/v1", api_key=key, max_retries=0, timeout=60)


def chat(key=KEY, model="plain", text=TEXT, **more):
    messages = [{"role": "user", "content": text}]
    return client(key).chat.completions.create(model=model, messages=messages, max_tokens=8, **more)


@case("chat")
def _():
    expect(chat().usage.completion_tokens > 0, "no usage")


@case("stream")
def _():
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    expect(any(chunk.choices and chunk.choices[0].delta.content for chunk in chunks), "no text")
    expect(chunks[-1].usage.completion_tokens > 0, "no usage")


@case("tools")
def _():
    message = chat(model="tools", tools=[TOOL]).choices[0].message
    expect(json.loads(message.tool_calls[0].function.arguments) == {"city": "Paris"}, "no call")


@case("structured")
def _():
    answer = client().chat.completions.parse(model="plain", messages=MESSAGES, response_format=Answer)
    expect(answer.choices[0].message.parsed.kind in "ab", "not parsed")


@case("embeddings")
def _():
    packed = client().embeddings.create(model="embed", input=["one", "two"]).data
    plain = client().embeddings.create(model="embed", input=["one", "two"], encoding_format="float").data
    for one, other in zip(packed, plain):
        expect(all(abs(a - b) < 1e-5 for a, b in zip(one.embedding, other.embedding, strict=True)), "not alike")


@case("list")
def _():
    expect("plain:latest" in [model.id for model in client().models.list()], "not listed")


@case("abort")
def _():
    with client().chat.completions.create(model="slow", messages=MESSAGES, max_tokens=900, stream=True) as stream:
        next(iter(stream))


@case("401")
def _():
    refusal(lambda: chat(key=WRONG_KEY), openai.AuthenticationError)


@case("403")
def _():
    refusal(lambda: chat(model=FORBIDDEN_MODEL), openai.PermissionDeniedError)


@case("413")
def _():
    expect(refusal(lambda: chat(text=TOO_LONG), openai.APIStatusError).status_code == 413, "another status")


@case("429")
def _():
    refusal(lambda: chat(key=LIMITED_KEY), openai.RateLimitError)


@case("retry-after")
def _():
    error = refusal(lambda: chat(key=LIMITED_KEY), openai.RateLimitError)
    expect(int(error.response.headers["retry-after"]) >= 1, "no Retry-After")


run("openai", "openai")
