import ollama
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.ollama import OllamaEmbedding
from llama_index.llms.ollama import Ollama
from pydantic import BaseModel
from typing import Literal

from matrix import *


class Answer(BaseModel):
    kind: Literal["a", "b"]


def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


def model(name="plain", key=KEY, tokens=8):
    headers = {"Authorization": f"Bearer {key}"}
    return Ollama(
        model=name,
        base_url=URL,
        client=ollama.Client(host=URL, headers=headers, timeout=60),
        context_window=2048,
        additional_kwargs={"num_predict": tokens},
    )


def chat(text=TEXT, **more):
    return model(**more).chat([ChatMessage(role="user", content=text)])


def status(call):
    return refusal(call, ollama.ResponseError).status_code


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
    embedding = OllamaEmbedding(
        model_name="embed", base_url=URL, client_kwargs={"headers": {"Authorization": f"Bearer {KEY}"}}
    )
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
    expect(status(lambda: chat(key=WRONG_KEY)) == 401, "another status")


@case("403")
def _():
    expect(status(lambda: chat(name=FORBIDDEN_MODEL)) == 403, "another status")


@case("413")
def _():
    expect(status(lambda: chat(text=TOO_LONG)) == 413, "another status")


@case("429")
def _():
    expect(status(lambda: chat(key=LIMITED_KEY)) == 429, "another status")


@case("retry-after")
def _():
    raise NotOffered("its error has no headers")


run("llama-index-llms-ollama", "llama-index-llms-ollama")
