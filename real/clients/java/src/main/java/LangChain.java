import dev.langchain4j.agent.tool.ToolSpecification;
import dev.langchain4j.data.message.UserMessage;
import dev.langchain4j.exception.HttpException;
import dev.langchain4j.model.chat.ChatModel;
import dev.langchain4j.model.chat.StreamingChatModel;
import dev.langchain4j.model.chat.request.ChatRequest;
import dev.langchain4j.model.chat.request.ResponseFormat;
import dev.langchain4j.model.chat.request.ResponseFormatType;
import dev.langchain4j.model.chat.request.json.JsonEnumSchema;
import dev.langchain4j.model.chat.request.json.JsonObjectSchema;
import dev.langchain4j.model.chat.request.json.JsonSchema;
import dev.langchain4j.model.chat.response.ChatResponse;
import dev.langchain4j.model.chat.response.PartialResponse;
import dev.langchain4j.model.chat.response.PartialResponseContext;
import dev.langchain4j.model.chat.response.StreamingChatResponseHandler;
import dev.langchain4j.model.embedding.EmbeddingModel;
import dev.langchain4j.data.segment.TextSegment;
import dev.langchain4j.model.ollama.OllamaChatModel;
import dev.langchain4j.model.ollama.OllamaEmbeddingModel;
import dev.langchain4j.model.ollama.OllamaModels;
import dev.langchain4j.model.ollama.OllamaStreamingChatModel;
import dev.langchain4j.model.openai.OpenAiChatModel;
import dev.langchain4j.model.openai.OpenAiEmbeddingModel;
import dev.langchain4j.model.openai.OpenAiStreamingChatModel;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

final class LangChain {
  /** The models of one of its forms. */
  interface Form {
    ChatModel chat(String key, String model, int bound);

    StreamingChatModel stream(String model, int bound);

    EmbeddingModel embeddings();

    void list() throws Exception;
  }

  static final class OpenAi implements Form {
    final String base = Matrix.url + "/v1";

    public ChatModel chat(String key, String model, int bound) {
      return OpenAiChatModel.builder().baseUrl(base).apiKey(key).modelName(model).maxTokens(bound).maxRetries(0).build();
    }

    public StreamingChatModel stream(String model, int bound) {
      return OpenAiStreamingChatModel.builder().baseUrl(base).apiKey(Matrix.key).modelName(model).maxTokens(bound).build();
    }

    public EmbeddingModel embeddings() {
      return OpenAiEmbeddingModel.builder().baseUrl(base).apiKey(Matrix.key).modelName("embed").build();
    }

    public void list() {
      throw new Matrix.NotOffered("it lists no models");
    }
  }

  static final class Ollama implements Form {
    static Map<String, String> header(String key) {
      return Map.of("Authorization", "Bearer " + key);
    }

    public ChatModel chat(String key, String model, int bound) {
      return OllamaChatModel.builder().baseUrl(Matrix.url).customHeaders(header(key)).modelName(model).numPredict(bound).maxRetries(0).build();
    }

    public StreamingChatModel stream(String model, int bound) {
      return OllamaStreamingChatModel.builder().baseUrl(Matrix.url).customHeaders(header(Matrix.key)).modelName(model).numPredict(bound).build();
    }

    public EmbeddingModel embeddings() {
      return OllamaEmbeddingModel.builder().baseUrl(Matrix.url).customHeaders(header(Matrix.key)).modelName("embed").build();
    }

    public void list() {
      var models = OllamaModels.builder().baseUrl(Matrix.url).maxRetries(0).build().availableModels().content();
      Matrix.expect(models.stream().anyMatch(model -> model.getName().equals("plain:latest")), "not listed");
    }
  }

  static ChatRequest.Builder asked() {
    return ChatRequest.builder().messages(UserMessage.from(Matrix.text));
  }

  /** Runs a stream to its end, or to its first part. */
  static int parts(StreamingChatModel model, boolean leaves) throws Exception {
    var ended = new CompletableFuture<Integer>();
    model.chat(asked().build(), new StreamingChatResponseHandler() {
      int count = 0;

      @Override
      public void onPartialResponse(PartialResponse part, PartialResponseContext context) {
        count++;
        if (!leaves) return;
        context.streamingHandle().cancel();
        ended.complete(count);
      }

      @Override
      public void onCompleteResponse(ChatResponse response) {
        ended.complete(response.tokenUsage().outputTokenCount() > 0 ? count : 0);
      }

      @Override
      public void onError(Throwable error) {
        ended.completeExceptionally(error);
      }
    });
    return ended.get(60, TimeUnit.SECONDS);
  }

  static void refused(Form form, String key, String model, String text, int status) throws Exception {
    var error = Matrix.refusal(HttpException.class, () -> form.chat(key, model, 8).chat(text));
    Matrix.expect(error.statusCode() == status, "another status");
  }

  static void run(String client, Class<?> type, Form form) {
    Map<String, Matrix.Case> cases = new LinkedHashMap<>();
    cases.put("chat", () -> {
      var answer = form.chat(Matrix.key, "plain", 8).chat(asked().build());
      Matrix.expect(!answer.aiMessage().text().isEmpty() && answer.tokenUsage().outputTokenCount() > 0, "no text or usage");
    });
    cases.put("stream", () -> Matrix.expect(parts(form.stream("plain", 8), false) > 1, "not streamed"));
    cases.put("tools", () -> {
      var parameters = JsonObjectSchema.builder().addStringProperty("city", "a city").required("city").build();
      var tool = ToolSpecification.builder()
          .name("get_weather").description("The weather in a city").parameters(parameters).build();
      var calls = form.chat(Matrix.key, "tools", 60).chat(asked().toolSpecifications(tool).build())
          .aiMessage().toolExecutionRequests();
      Matrix.expect(calls.get(0).arguments().replaceAll("\\s", "").equals("{\"city\":\"Paris\"}"), "another city");
    });
    cases.put("structured", () -> {
      var kind = JsonEnumSchema.builder().enumValues(Matrix.kinds).build();
      var schema = JsonObjectSchema.builder().addProperty("kind", kind).required("kind").build();
      var format = ResponseFormat.builder().type(ResponseFormatType.JSON)
          .jsonSchema(JsonSchema.builder().name("answer").rootElement(schema).build()).build();
      var answer = form.chat(Matrix.key, "plain", 60).chat(asked().responseFormat(format).build());
      Matrix.expect(answer.aiMessage().text().contains("\"kind\""), "not the schema: " + answer.aiMessage().text());
    });
    cases.put("embeddings", () -> Matrix.expect(
        form.embeddings().embedAll(List.of(TextSegment.from("one"), TextSegment.from("two"))).content().size() == 2, "not two"));
    cases.put("list", form::list);
    cases.put("abort", () -> Matrix.expect(parts(form.stream("slow", 900), true) > 0, "no answer"));
    cases.put("401", () -> refused(form, Matrix.wrongKey, "plain", Matrix.text, 401));
    cases.put("403", () -> refused(form, Matrix.key, Matrix.forbiddenModel, Matrix.text, 403));
    cases.put("413", () -> refused(form, Matrix.key, "plain", Matrix.tooLong, 413));
    cases.put("429", () -> refused(form, Matrix.limitedKey, "plain", Matrix.text, 429));
    cases.put("retry-after", () -> {
      throw new Matrix.NotOffered("its error has no headers");
    });
    Matrix.run(client, type, cases);
  }

  static void runOpenAi() {
    run("langchain4j-open-ai", OpenAiChatModel.class, new OpenAi());
  }

  static void runOllama() {
    run("langchain4j-ollama", OllamaChatModel.class, new Ollama());
  }
}
