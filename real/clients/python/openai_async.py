import asyncio
from typing import Literal

import openai
from pydantic import BaseModel

from matrix import *


class Answer(BaseModel):
    kind: Literal["a", "b"]


def client(key=KEY):
    return openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=key, max_retries=0, timeout=60)


async def chat(key=KEY, model="plain", text=TEXT, **more):
    messages = [{"role": "user", "content": text}]
    return await client(key).chat.completions.create(model=model, messages=messages, max_tokens=8, **more)


@case("chat")
def _():
    expect(asyncio.run(chat()).usage.completion_tokens > 0, "no usage")


@case("stream")
def _():
    async def collected():
        return [chunk async for chunk in await chat(stream=True, stream_options={"include_usage": True})]

    expect(asyncio.run(collected())[-1].usage.completion_tokens > 0, "no usage")


@case("tools")
def _():
    message = asyncio.run(chat(model="tools", tools=[TOOL])).choices[0].message
    expect(json.loads(message.tool_calls[0].function.arguments) == {"city": "Paris"}, "no call")


@case("structured")
def _():
    ask = client().chat.completions.parse(model="plain", messages=MESSAGES, response_format=Answer)
    expect(asyncio.run(ask).choices[0].message.parsed.kind in "ab", "not parsed")


@case("embeddings")
def _():
    data = asyncio.run(client().embeddings.create(model="embed", input=["one", "two"])).data
    expect(len(data) == 2 and len(data[0].embedding) == len(data[1].embedding), "not two")


@case("list")
def _():
    async def names():
        return [model.id async for model in client().models.list()]

    expect("plain:latest" in asyncio.run(names()), "not listed")


@case("abort")
def _():
    async def leave():
        opened = client().chat.completions.create(model="slow", messages=MESSAGES, max_tokens=900, stream=True)
        async with await opened as stream:
            await anext(aiter(stream))

    asyncio.run(leave())


@case("401")
def _():
    refusal(lambda: asyncio.run(chat(key=WRONG_KEY)), openai.AuthenticationError)


@case("403")
def _():
    refusal(lambda: asyncio.run(chat(model=FORBIDDEN_MODEL)), openai.PermissionDeniedError)


@case("413")
def _():
    error = refusal(lambda: asyncio.run(chat(text=TOO_LONG)), openai.APIStatusError)
    expect(error.status_code == 413, "another status")


@case("429")
def _():
    refusal(lambda: asyncio.run(chat(key=LIMITED_KEY)), openai.RateLimitError)


@case("retry-after")
def _():
    error = refusal(lambda: asyncio.run(chat(key=LIMITED_KEY)), openai.RateLimitError)
    expect(int(error.response.headers["retry-after"]) >= 1, "no Retry-After")


run("openai, async", "openai")
