"""Argument: `openai`, `ollama_chat` or `ollama`, the provider in front of the model's name."""

from typing import Literal

import litellm
from pydantic import BaseModel

from matrix import *

PROVIDER = sys.argv[1]
litellm.suppress_debug_info = True
BASE = f"{URL}/v1" if PROVIDER == "openai" else URL


class Answer(BaseModel):
    kind: Literal["a", "b"]


def chat(key=KEY, model="plain", text=TEXT, tokens=8, **more):
    return litellm.completion(
        model=f"{PROVIDER}/{model}",
        messages=[{"role": "user", "content": text}],
        api_base=BASE,
        api_key=key,
        max_tokens=tokens,
        num_retries=0,
        max_retries=0,
        timeout=60,
        **more,
    )


@case("chat")
def _():
    expect(chat().usage.completion_tokens > 0, "no usage")


@case("stream")
def _():
    texts = [chunk.choices[0].delta.content for chunk in chat(stream=True)]
    expect(len([text for text in texts if text]) > 1, "not streamed")


@case("tools")
def _():
    call = chat(model="tools", tools=[TOOL], tokens=60).choices[0].message.tool_calls[0].function
    expect(call.name == "get_weather", "no call")


@case("structured")
def _():
    text = chat(response_format=Answer, tokens=60).choices[0].message.content
    expect(Answer.model_validate_json(text).kind in "ab", "not parsed")


@case("embeddings")
def _():
    provider = "openai" if PROVIDER == "openai" else "ollama"
    answer = litellm.embedding(model=f"{provider}/embed", input=["one", "two"], api_base=BASE, api_key=KEY)
    expect(len(answer.data) == 2, "not two")


@case("list")
def _():
    raise NotOffered("it lists no models")


@case("abort")
def _():
    stream = chat(model="slow", tokens=900, stream=True)
    next(iter(stream))
    parts = stream.completion_stream
    (parts if PROVIDER == "openai" else parts.streaming_response).close()


@case("401")
def _():
    error = refusal(lambda: chat(key=WRONG_KEY), Exception)
    expect(getattr(error, "status_code", None) == 401, f"{type(error).__name__}: {error}")


@case("403")
def _():
    error = refusal(lambda: chat(model=FORBIDDEN_MODEL), Exception)
    expect(getattr(error, "status_code", None) == 403, f"{type(error).__name__}: {error}")


@case("413")
def _():
    error = refusal(lambda: chat(text=TOO_LONG), Exception)
    expect(getattr(error, "status_code", None) == 413, f"{type(error).__name__}: {error}")


@case("429")
def _():
    error = refusal(lambda: chat(key=LIMITED_KEY), litellm.RateLimitError)
    expect(error.status_code == 429, "another status")


@case("retry-after")
def _():
    error = refusal(lambda: chat(key=LIMITED_KEY), Exception)
    response = getattr(error, "response", None)
    headers = getattr(error, "litellm_response_headers", None) or (response.headers if response is not None else {})
    expect(int(headers.get("retry-after", 0)) >= 1, "no Retry-After")


run(f"litellm, {PROVIDER}/", "litellm")
