"""Argument `headers`: the key in `headers=`. Argument `environment`: the key in OLLAMA_API_KEY."""

import ollama

from matrix import *

WAY = sys.argv[1]


def client(key=KEY):
    if WAY == "headers":
        return ollama.Client(host=URL, headers={"Authorization": f"Bearer {key}"}, timeout=60)
    os.environ["OLLAMA_API_KEY"] = key
    return ollama.Client(host=URL, timeout=60)


def chat(key=KEY, model="plain", text=TEXT, **more):
    messages = [{"role": "user", "content": text}]
    return client(key).chat(model=model, messages=messages, options={"num_predict": 8}, **more)


def status(call):
    return refusal(call, ollama.ResponseError).status_code


@case("chat")
def _():
    expect(chat().eval_count > 0, "no counts")


@case("stream")
def _():
    frames = list(chat(stream=True))
    expect(frames[-1].done and frames[0].message.content, "no text")


@case("tools")
def _():
    call = chat(model="tools", tools=[TOOL]).message.tool_calls[0].function
    expect(call.name == "get_weather" and call.arguments == {"city": "Paris"}, "no call")


@case("structured")
def _():
    text = client().chat(model="plain", messages=MESSAGES, format=SCHEMA, options={"num_predict": 60}).message.content
    expect(json.loads(text)["kind"] in "ab", text)


@case("embeddings")
def _():
    expect(len(client().embed(model="embed", input=["one", "two"]).embeddings) == 2, "not two")


@case("list")
def _():
    expect("plain:latest" in [model.model for model in client().list().models], "not listed")


@case("abort")
def _():
    stream = client().chat(model="slow", messages=MESSAGES, stream=True, options={"num_predict": 900})
    next(stream)
    stream.close()


@case("401")
def _():
    expect(status(lambda: chat(key=WRONG_KEY)) == 401, "another status")


@case("403")
def _():
    expect(status(lambda: chat(model=FORBIDDEN_MODEL)) == 403, "another status")


@case("413")
def _():
    expect(status(lambda: chat(text=TOO_LONG)) == 413, "another status")


@case("429")
def _():
    expect(status(lambda: chat(key=LIMITED_KEY)) == 429, "another status")


@case("retry-after")
def _():
    raise NotOffered("its error has no headers")


run("ollama" if WAY == "headers" else "ollama, OLLAMA_API_KEY", "ollama")
