import asyncio
from typing import Literal

import openai
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from matrix import *


class Answer(BaseModel):
    kind: Literal["a", "b"]


def agent(name="plain", key=KEY, tokens=8, **more):
    client = openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=key, max_retries=0, timeout=60)
    model = OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client))
    return Agent(model, model_settings={"max_tokens": tokens}, retries=0, **more)


def status(call):
    return refusal(call, ModelHTTPError).status_code


@case("chat")
def _():
    expect(agent().run_sync(TEXT).output, "no text")


@case("stream")
def _():
    async def collected():
        async with agent().run_stream(TEXT) as answer:
            return [part async for part in answer.stream_text(delta=True, debounce_by=None)]

    expect(len(asyncio.run(collected())) > 1, "not streamed")


@case("tools")
def _():
    asked = agent("tools", tokens=60)
    cities = []

    @asked.tool_plain
    def get_weather(city: str) -> str:
        """The weather in a city."""
        cities.append(city)
        return "sunny"

    asked.run_sync(TEXT)
    expect(cities == ["Paris"], "no call")


@case("structured")
def _():
    expect(agent(tokens=60, output_type=NativeOutput(Answer)).run_sync(TEXT).output.kind in "ab", "not parsed")


@case("embeddings")
def _():
    from pydantic_ai import Embedder
    from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel

    client = openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)
    embedder = Embedder(OpenAIEmbeddingModel("embed", provider=OpenAIProvider(openai_client=client)))
    expect(len(asyncio.run(embedder.embed_documents(["one", "two"])).embeddings) == 2, "not two")


@case("list")
def _():
    raise NotOffered("it lists no models")


@case("abort")
def _():
    async def leave():
        async with agent("slow", tokens=900).run_stream(TEXT) as answer:
            async for _ in answer.stream_text(delta=True, debounce_by=None):
                break

    asyncio.run(leave())


@case("401")
def _():
    expect(status(lambda: agent(key=WRONG_KEY).run_sync(TEXT)) == 401, "another status")


@case("403")
def _():
    expect(status(lambda: agent(FORBIDDEN_MODEL).run_sync(TEXT)) == 403, "another status")


@case("413")
def _():
    expect(status(lambda: agent().run_sync(TOO_LONG)) == 413, "another status")


@case("429")
def _():
    expect(status(lambda: agent(key=LIMITED_KEY).run_sync(TEXT)) == 429, "another status")


@case("retry-after")
def _():
    error = refusal(lambda: agent(key=LIMITED_KEY).run_sync(TEXT), ModelHTTPError)
    expect(int(error.__cause__.response.headers["retry-after"]) >= 1, "no Retry-After")


run("pydantic-ai", "pydantic-ai-slim")
