"""The `llm` command. Argument `openai`: its own OpenAI models; argument `ollama`: the plugin llm-ollama."""

import subprocess
import tempfile
from pathlib import Path

from matrix import *

WAY = sys.argv[1]
LLM = [sys.executable, "-m", "llm"]


def llm(*words, key=KEY, model="plain", wait=60, leave=False):
    """What it printed; with `leave` it is killed at its first character."""
    with tempfile.TemporaryDirectory() as folder:
        if WAY == "openai":
            for name in ("plain", "tools", "slow", FORBIDDEN_MODEL):
                entry = f"- model_id: v1-{name}\n  model_name: {name}\n  api_base: {URL}/v1\n"
                entry += f"  api_key_name: tollgate\n  supports_tools: {str(name == 'tools').lower()}\n"
                entry += "  supports_schema: true\n"
                with open(f"{folder}/extra-openai-models.yaml", "a") as file:
                    file.write(entry)
            Path(folder, "keys.json").write_text(json.dumps({"tollgate": key}))
        env = {**os.environ, "LLM_USER_PATH": folder, "OLLAMA_HOST": URL, "OLLAMA_API_KEY": key}
        named = f"v1-{model}" if WAY == "openai" else f"ollama/{model}"
        words = [word.replace("MODEL", named) for word in words]
        if leave:
            with subprocess.Popen([*LLM, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
                first = child.stdout.read(1)
                child.kill()
                return first
        done = subprocess.run([*LLM, *words], env=env, capture_output=True, text=True, timeout=wait)
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-400:])
        return done.stdout.strip()


BOUND = ["-o", "max_tokens", "8"] if WAY == "openai" else ["-o", "num_predict", "8"]


@case("chat")
def _():
    expect(llm("-m", "MODEL", "--no-stream", *BOUND, TEXT), "no text")


@case("stream")
def _():
    expect(llm("-m", "MODEL", *BOUND, TEXT), "no text")


@case("tools")
def _():
    function = 'def get_weather(city: str) -> str:\n    "The weather"\n    return "sunny in " + city\n'
    said = llm("-m", "MODEL", "--functions", function, "--td", TEXT, model="tools", wait=90)
    return f"{len(said)} characters"


@case("structured")
def _():
    expect(json.loads(llm("-m", "MODEL", "--schema", json.dumps(SCHEMA), TEXT))["kind"] in "ab", "not parsed")


@case("embeddings")
def _():
    if WAY == "openai":
        raise NotOffered("only OpenAI's own models")
    expect(len(json.loads(llm("embed", "-m", "ollama/embed", "-c", "one"))) > 1, "no vector")


@case("list")
def _():
    if WAY == "openai":
        raise NotOffered("it lists what its file names")
    expect("plain:latest" in llm("ollama", "models"), "not listed")


@case("abort")
def _():
    bound = [word.replace("8", "900") for word in BOUND]
    expect(llm("-m", "MODEL", *bound, TEXT, model="slow", leave=True), "no text")


def refused(call, *words):
    error = refusal(call, RuntimeError)
    expect(any(word in str(error) for word in words), str(error))


@case("401")
def _():
    refused(lambda: llm("-m", "MODEL", TEXT, key=WRONG_KEY), "401", "unauthorized", "Unknown model")


@case("403")
def _():
    if WAY == "ollama":
        raise NotOffered("it asks only for models it listed")
    refused(lambda: llm("-m", "MODEL", TEXT, model=FORBIDDEN_MODEL), "403", "forbidden")


@case("413")
def _():
    raise NotOffered("a command line is shorter")


@case("429")
def _():
    refused(lambda: llm("-m", "MODEL", TEXT, key=LIMITED_KEY), "429", "per minute")


@case("retry-after")
def _():
    raise NotOffered("a command prints no headers")


run("llm" if WAY == "openai" else "llm with llm-ollama", "llm" if WAY == "openai" else "llm-ollama")
