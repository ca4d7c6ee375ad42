import openai
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

from matrix import *


def model(name="plain", key=KEY, tokens=8):
    return ChatOpenAI(model=name, base_url=f"{URL}/v1", api_key=key, max_retries=0, max_tokens=tokens, timeout=60)


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
    embeddings = OpenAIEmbeddings(
        model="embed", base_url=f"{URL}/v1", api_key=KEY, check_embedding_ctx_length=False
    )
    expect(len(embeddings.embed_documents(["one", "two"])) == 2, "not two")
    return "with check_embedding_ctx_length=False"


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
    refusal(lambda: model(key=WRONG_KEY).invoke(TEXT), openai.AuthenticationError)


@case("403")
def _():
    refusal(lambda: model(FORBIDDEN_MODEL).invoke(TEXT), openai.PermissionDeniedError)


@case("413")
def _():
    expect(refusal(lambda: model().invoke(TOO_LONG), openai.APIStatusError).status_code == 413, "another status")


@case("429")
def _():
    refusal(lambda: model(key=LIMITED_KEY).invoke(TEXT), openai.RateLimitError)


@case("retry-after")
def _():
    error = refusal(lambda: model(key=LIMITED_KEY).invoke(TEXT), openai.RateLimitError)
    expect(int(error.response.headers["retry-after"]) >= 1, "no Retry-After")


run("langchain-openai", "langchain-openai")
