import ollama
from langchain_ollama import ChatOllama, OllamaEmbeddings

from matrix import *


def settings(key):
    return {"base_url": URL, "client_kwargs": {"headers": {"Authorization": f"Bearer {key}"}, "timeout": 60}}


def model(name="plain", key=KEY, tokens=8):
    return ChatOllama(model=name, num_predict=tokens, **settings(key))


def status(call):
    return refusal(call, ollama.ResponseError).status_code


@case("chat")
def _():
    expect(model().invoke(TEXT).usage_metadata["output_tokens"] > 0, "no usage")


@case("stream")
def _():
    expect(len([part for part in model().stream(TEXT) if part.content]) > 1, "not streamed")


@case("tools")
def _():
    call = model("tools").bind_tools([TOOL]).invoke(TEXT).tool_calls[0]
    expect(call["name"] == "get_weather" and call["args"] == {"city": "Paris"}, "no call")


@case("structured")
def _():
    schema = {"title": "Answer", "description": "An answer", **SCHEMA}
    answer = model(tokens=60).with_structured_output(schema, method="json_schema").invoke(TEXT)
    expect(answer["kind"] in "ab", "not parsed")


@case("embeddings")
def _():
    expect(len(OllamaEmbeddings(model="embed", **settings(KEY)).embed_documents(["one", "two"])) == 2, "not two")


@case("list")
def _():
    raise NotOffered("it lists no models")


@case("abort")
def _():
    stream = model("slow", tokens=900).stream(TEXT)
    next(stream)
    stream.close()


@case("401")
def _():
    expect(status(lambda: model(key=WRONG_KEY).invoke(TEXT)) == 401, "another status")


@case("403")
def _():
    expect(status(lambda: model(FORBIDDEN_MODEL).invoke(TEXT)) == 403, "another status")


@case("413")
def _():
    expect(status(lambda: model().invoke(TOO_LONG)) == 413, "another status")


@case("429")
def _():
    expect(status(lambda: model(key=LIMITED_KEY).invoke(TEXT)) == 429, "another status")


@case("retry-after")
def _():
    raise NotOffered("its error has no headers")


run("langchain-ollama", "langchain-ollama")
