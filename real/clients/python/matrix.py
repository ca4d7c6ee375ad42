"""The cases that every client is asked to do. A client's script registers what it can and calls `run`."""

import json
import os
import sys
import time
from importlib.metadata import version

URL = os.environ["TOLLGATE_URL"]
KEY = os.environ["TOLLGATE_KEY"]
WRONG_KEY = os.environ["TOLLGATE_WRONG_KEY"]
LIMITED_KEY = os.environ["TOLLGATE_LIMITED_KEY"]
"""A key whose requests of this minute are used up."""

TEXT = "Say hello."
MESSAGES = [{"role": "user", "content": TEXT}]
TOO_LONG = "x" * 300_000
FORBIDDEN_MODEL = "nobody/has:this"

SCHEMA = {
    "type": "object",
    "properties": {"kind": {"type": "string", "enum": ["a", "b"]}},
    "required": ["kind"],
    "additionalProperties": False,
}

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "a city"}},
            "required": ["city"],
        },
    },
}


class NotOffered(Exception):
    """The client has no function for it."""


_cases = {}


def case(name):
    def register(function):
        _cases[name] = function
        return function

    return register


def expect(truth, what):
    if not truth:
        raise AssertionError(what)


def refusal(call, *types):
    """The error that `call` raises; it has to be one of `types`."""
    try:
        call()
    except types as error:
        return error
    raise AssertionError("not refused")


def mentions(error, *words):
    """Whether one of the words is in the error or in what caused it."""
    seen = error
    while seen is not None:
        if any(word in f"{seen!r} {seen}" for word in words):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def run(client, package):
    for name, function in _cases.items():
        began = time.monotonic()
        line = {"client": client, "version": version(package), "case": name}
        try:
            said = function()
            line |= {"result": "works", "detail": "" if said is None else str(said)}
        except NotOffered as why:
            line |= {"result": "not offered", "detail": str(why)}
        except Exception as error:
            line |= {"result": "fails", "detail": f"{type(error).__name__}: {error}"[:600]}
        line["ms"] = round((time.monotonic() - began) * 1000)
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
