import openai
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel
from typing import Literal

from matrix import *


class Answer(BaseModel):
    kind: Literal["a", "b"]


def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


def model(name="plain", key=KEY, tokens=8):
    return OpenAILike(
        model=name,
        api_base=f"{URL}/v1",
        api_key=key,
        is_chat_model=True,
        is_function_calling_model=name == "tools",
        should_use_structured_outputs=True,
        context_window=2048,
        max_tokens=tokens,
        max_retries=0,
        timeout=60,
    )


def chat(text=TEXT, **more):
    return model(**more).chat([ChatMessage(role="user", content=text)])


@case("chat")
def _():
    expect(chat().message.content, "no text")


@case("stream")
def _():
    expect(len(list(model().stream_chat([ChatMessage(role="user", content=TEXT)]))) > 1, "not streamed")


@case("tools")
def _():
    tool = FunctionTool.from_defaults(get_weather)
    answer = model("tools").chat_with_tools([tool], user_msg=TEXT)
    call = model("tools").get_tool_calls_from_response(answer)[0]
    expect(call.tool_name == "get_weather" and call.tool_kwargs == {"city": "Paris"}, "no call")


@case("structured")
def _():
    answer = model(tokens=60).as_structured_llm(Answer).chat([ChatMessage(role="user", content=TEXT)])
    expect(answer.raw.kind in "ab", "not parsed")


@case("embeddings")
def _():
    embedding = OpenAILikeEmbedding(model_name="embed", api_base=f"{URL}/v1", api_key=KEY)
    expect(len(embedding.get_text_embedding_batch(["one", "two"])) == 2, "not two")


@case("list")
def _():
    raise NotOffered("it lists no models")


@case("abort")
def _():
    stream = model("slow", tokens=900).stream_chat([ChatMessage(role="user", content=TEXT)])
    next(stream)
    stream.close()


@case("401")
def _():
    refusal(lambda: chat(key=WRONG_KEY), openai.AuthenticationError)


@case("403")
def _():
    refusal(lambda: chat(name=FORBIDDEN_MODEL), openai.PermissionDeniedError)


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


run("llama-index-llms-openai-like", "llama-index-llms-openai-like")
