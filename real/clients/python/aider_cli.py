"""Argument: `openai` or `ollama_chat`, the provider in front of the model's name."""

import re
import subprocess
import tempfile
from pathlib import Path

from matrix import *

PROVIDER = sys.argv[1]
AIDER = [sys.executable, "-m", "aider"]


def aider(*words, key=KEY, model="plain", wait=150):
    with tempfile.TemporaryDirectory() as folder:
        env = {
            **os.environ,
            "HOME": folder,
            "OPENAI_API_BASE": f"{URL}/v1",
            "OPENAI_API_KEY": key,
            "OLLAMA_API_BASE": URL,
            "OLLAMA_API_KEY": key,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        # At aider's temperature of 0 the test's model goes in circles and never ends.
        settings = Path(folder, "settings.yml")
        settings.write_text(f"- name: {PROVIDER}/{model}\n  use_temperature: 1.0\n  extra_params:\n    max_tokens: 400\n")
        quiet = "--yes-always --no-git --no-check-update --no-show-model-warnings --analytics-disable --no-show-release-notes"
        done = subprocess.run(
            [*AIDER, "--model", f"{PROVIDER}/{model}", "--model-settings-file", str(settings), "--map-tokens", "0"]
            + [*quiet.split(), "--edit-format", "ask", "--timeout", "20", *words],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=wait,
            stdin=subprocess.DEVNULL,
        )
        return done.stdout + done.stderr


def answered(*words):
    said = aider(*words, "--message", TEXT)
    expect(re.search(r"[1-9]\d* received", said), said[-400:])


@case("chat")
def _():
    answered("--no-stream")


@case("stream")
def _():
    answered("--stream")


def refused(said, *words):
    expect(any(word in said for word in words), said[-400:])


@case("401")
def _():
    refused(aider("--message", TEXT, key=WRONG_KEY), "unauthorized", "AuthenticationError")


@case("403")
def _():
    refused(aider("--message", TEXT, model=FORBIDDEN_MODEL), "forbidden", "403")


for name, why in {
    "tools": "it edits by text",
    "structured": "it edits by text",
    "embeddings": "it embeds nothing",
    "list": "it lists what its own files name",
    "abort": "it ends by Ctrl-C at a terminal",
    "413": "it shortens its own prompts",
    "429": "it waits and tries again",
    "retry-after": "it waits by its own rule",
}.items():

    @case(name)
    def _(why=why):
        raise NotOffered(why)


run(f"aider, {PROVIDER}/", "aider-chat")
