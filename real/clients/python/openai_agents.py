import asyncio
from typing import Literal

import openai
from agents import (
    Agent,
    MaxTurnsExceeded,
    ModelSettings,
    OpenAIProvider,
    RunConfig,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from pydantic import BaseModel

from matrix import *

set_tracing_disabled(True)


class Answer(BaseModel):
    kind: Literal["a", "b"]


def config(key=KEY):
    """Nothing is set but address and key, so it asks `/v1/responses`."""
    client = openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=key, max_retries=0, timeout=60)
    return RunConfig(model_provider=OpenAIProvider(openai_client=client))


def agent(model="plain", tokens=2000, **more):
    return Agent(name="asks", model=model, model_settings=ModelSettings(max_tokens=tokens), **more)


def ask(key=KEY, text=TEXT, turns=10, **more):
    return asyncio.run(Runner.run(agent(**more), text, run_config=config(key), max_turns=turns))


@case("chat")
def _():
    answer = ask()
    expect(answer.final_output and answer.context_wrapper.usage.output_tokens > 0, "no text or usage")


@case("stream")
def _():
    async def events():
        answer = Runner.run_streamed(agent(), TEXT, run_config=config())
        return [event async for event in answer.stream_events() if event.type == "raw_response_event"]

    expect(len(asyncio.run(events())) > 3, "not streamed")


@case("tools")
def _():
    cities = []

    @function_tool
    def get_weather(city: str) -> str:
        """The weather in a city."""
        cities.append(city)
        return "sunny"

    try:
        # The model of the test calls again whatever the result is.
        ask(model="tools", tools=[get_weather], tokens=400, turns=2)
    except MaxTurnsExceeded:
        pass
    expect(cities[0] == "Paris", "no call")


@case("structured")
def _():
    expect(ask(output_type=Answer).final_output.kind in "ab", "not parsed")


@case("embeddings")
def _():
    raise NotOffered("it has none")


@case("list")
def _():
    raise NotOffered("it lists no models")


@case("abort")
def _():
    async def leave():
        answer = Runner.run_streamed(agent("slow", 900), TEXT, run_config=config())
        async for event in answer.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                answer.cancel()

    asyncio.run(leave())


def status(**more):
    return refusal(lambda: ask(**more), openai.APIStatusError).status_code


@case("401")
def _():
    expect(status(key=WRONG_KEY) == 401, "another status")


@case("403")
def _():
    expect(status(model=FORBIDDEN_MODEL) == 403, "another status")


@case("413")
def _():
    expect(status(text=TOO_LONG) == 413, "another status")


@case("429")
def _():
    expect(status(key=LIMITED_KEY) == 429, "another status")


@case("retry-after")
def _():
    error = refusal(lambda: ask(key=LIMITED_KEY), openai.APIStatusError)
    expect(int(error.response.headers["retry-after"]) >= 1, "no Retry-After")


run("openai-agents", "openai-agents")
