from typing import Literal

import instructor
import openai
from pydantic import BaseModel

from matrix import *


class Answer(BaseModel):
    kind: Literal["a", "b"]


class get_weather(BaseModel):
    """The weather in a city."""

    city: str


def client(key=KEY, mode=instructor.Mode.JSON_SCHEMA):
    return instructor.from_openai(
        openai.OpenAI(base_url=f"{URL}/v1", api_key=key, max_retries=0, timeout=60), mode=mode
    )


def ask(key=KEY, model="plain", text=TEXT, mode=instructor.Mode.JSON_SCHEMA, answer=Answer):
    messages = [{"role": "user", "content": text}]
    return client(key, mode).chat.completions.create(
        model=model, messages=messages, response_model=answer, max_retries=0, max_tokens=60
    )


def refused(call, status):
    error = refusal(call, Exception)
    expect(mentions(error, f"Error code: {status}", f"status_code={status}"), f"{type(error).__name__}: {error}")


@case("chat")
def _():
    ask(answer=None)


@case("stream")
def _():
    parts = client().chat.completions.create_partial(
        model="plain", messages=MESSAGES, response_model=Answer, max_retries=0, max_tokens=60
    )
    expect(list(parts)[-1].kind in "ab", "not parsed")


@case("tools")
def _():
    expect(ask(model="tools", mode=instructor.Mode.TOOLS, answer=get_weather).city == "Paris", "no call")


@case("structured")
def _():
    expect(ask().kind in "ab", "not parsed")


@case("embeddings")
def _():
    raise NotOffered("it is about answers only")


@case("list")
def _():
    raise NotOffered("it lists no models")


@case("abort")
def _():
    raise NotOffered("a stream ends with its model")


@case("401")
def _():
    refused(lambda: ask(key=WRONG_KEY), 401)


@case("403")
def _():
    refused(lambda: ask(model=FORBIDDEN_MODEL), 403)


@case("413")
def _():
    refused(lambda: ask(text=TOO_LONG), 413)


@case("429")
def _():
    refused(lambda: ask(key=LIMITED_KEY), 429)


@case("retry-after")
def _():
    error = refusal(lambda: ask(key=LIMITED_KEY), Exception)
    while error is not None and not isinstance(error, openai.APIStatusError):
        error = error.__cause__ or error.__context__
    expect(error is not None and int(error.response.headers["retry-after"]) >= 1, "no Retry-After")


run("instructor", "instructor")
