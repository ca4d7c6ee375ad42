"""LangChain's own standard tests, of each of its integrations that speak to Ollama or to what is like OpenAI or Anthropic."""

import os

from langchain_anthropic import ChatAnthropic
from langchain_ollama import ChatOllama, OllamaEmbeddings
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langchain_tests.integration_tests import ChatModelIntegrationTests, EmbeddingsIntegrationTests

URL = os.environ["SUITE_URL"]
KEY = os.environ["SUITE_KEY"]
MODEL = "suites"
NATIVE = {"base_url": URL, "client_kwargs": {"headers": {"Authorization": f"Bearer {KEY}"}}}
OPENAI = {"base_url": f"{URL}/v1", "api_key": KEY}


class TestChatOllama(ChatModelIntegrationTests):
    chat_model_class = ChatOllama
    chat_model_params = {"model": MODEL, "temperature": 0, "num_predict": 64, **NATIVE}
    has_tool_choice = False
    supports_json_mode = True


class TestChatOpenAI(ChatModelIntegrationTests):
    chat_model_class = ChatOpenAI
    chat_model_params = {"model": MODEL, "temperature": 0, "max_tokens": 64, "use_responses_api": False, **OPENAI}
    supports_json_mode = True


class TestChatOpenAIResponses(ChatModelIntegrationTests):
    chat_model_class = ChatOpenAI
    chat_model_params = {"model": MODEL, "temperature": 0, "max_tokens": 64, "use_responses_api": True, **OPENAI}


class TestChatAnthropic(ChatModelIntegrationTests):
    chat_model_class = ChatAnthropic
    chat_model_params = {"model": MODEL, "temperature": 0, "max_tokens": 64, "base_url": URL, "api_key": KEY}


class TestOllamaEmbeddings(EmbeddingsIntegrationTests):
    embeddings_class = OllamaEmbeddings
    embedding_model_params = {"model": "embed", **NATIVE}


class TestOpenAIEmbeddings(EmbeddingsIntegrationTests):
    embeddings_class = OpenAIEmbeddings
    embedding_model_params = {"model": "embed", "check_embedding_ctx_length": False, **OPENAI}
