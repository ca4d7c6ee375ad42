import com.openai.client.OpenAIClient;
import com.openai.client.okhttp.OpenAIOkHttpClient;
import com.openai.core.JsonValue;
import com.openai.errors.OpenAIServiceException;
import com.openai.errors.PermissionDeniedException;
import com.openai.errors.RateLimitException;
import com.openai.errors.UnauthorizedException;
import com.openai.models.FunctionDefinition;
import com.openai.models.FunctionParameters;
import com.openai.models.ResponseFormatJsonSchema;
import com.openai.models.chat.completions.ChatCompletion;
import com.openai.models.chat.completions.ChatCompletionCreateParams;
import com.openai.models.chat.completions.ChatCompletionStreamOptions;
import com.openai.models.embeddings.EmbeddingCreateParams;
import com.openai.models.responses.ResponseCreateParams;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

final class OpenAi {
  static OpenAIClient client(String key) {
    return OpenAIOkHttpClient.builder().baseUrl(Matrix.url + "/v1").apiKey(key).maxRetries(0).build();
  }

  static ChatCompletionCreateParams.Builder asked(String model, String text) {
    return ChatCompletionCreateParams.builder().model(model).addUserMessage(text).maxTokens(8);
  }

  static ChatCompletion chat(String key, String model, String text) {
    return client(key).chat().completions().create(asked(model, text).build());
  }

  static void run() {
    Map<String, Matrix.Case> cases = new LinkedHashMap<>();
    OpenAIClient client = client(Matrix.key);
    cases.put("chat", () -> {
      ChatCompletion answer = chat(Matrix.key, "plain", Matrix.text);
      Matrix.expect(answer.usage().get().completionTokens() > 0, "no usage");
      // The same through Responses.
      var response = client.responses().create(
          ResponseCreateParams.builder().model("plain").input(Matrix.text).maxOutputTokens(16).build());
      Matrix.expect(response.usage().get().outputTokens() > 0, "no usage of a response");
    });
    cases.put("stream", () -> {
      var options = ChatCompletionStreamOptions.builder().includeUsage(true).build();
      try (var stream = client.chat().completions().createStreaming(
          asked("plain", Matrix.text).streamOptions(options).build())) {
        var chunks = stream.stream().toList();
        Matrix.expect(chunks.size() > 1, "not streamed");
        Matrix.expect(chunks.get(chunks.size() - 1).usage().get().completionTokens() > 0, "no usage");
      }
    });
    cases.put("tools", () -> {
      var parameters = FunctionParameters.builder()
          .putAdditionalProperty("type", JsonValue.from("object"))
          .putAdditionalProperty("properties",
              JsonValue.from(Map.of("city", Map.of("type", "string", "description", "a city"))))
          .putAdditionalProperty("required", JsonValue.from(List.of("city")))
          .build();
      var function = FunctionDefinition.builder()
          .name("get_weather").description("The weather in a city").parameters(parameters).build();
      var message = client.chat().completions()
          .create(asked("tools", Matrix.text).maxTokens(60).addFunctionTool(function).build())
          .choices().get(0).message();
      var call = message.toolCalls().get().get(0).asFunction();
      Matrix.expect(call.function().arguments().equals("{\"city\":\"Paris\"}"), "another city");
    });
    cases.put("structured", () -> {
      var schema = ResponseFormatJsonSchema.JsonSchema.Schema.builder()
          .putAdditionalProperty("type", JsonValue.from("object"))
          .putAdditionalProperty("properties",
              JsonValue.from(Map.of("kind", Map.of("type", "string", "enum", Matrix.kinds))))
          .putAdditionalProperty("required", JsonValue.from(List.of("kind")))
          .putAdditionalProperty("additionalProperties", JsonValue.from(false))
          .build();
      var format = ResponseFormatJsonSchema.builder().jsonSchema(
          ResponseFormatJsonSchema.JsonSchema.builder().name("answer").strict(true).schema(schema).build()).build();
      var answer = client.chat().completions()
          .create(asked("plain", Matrix.text).maxTokens(60).responseFormat(format).build());
      Matrix.expect(answer.choices().get(0).message().content().get().contains("\"kind\""), "not the schema");
    });
    cases.put("embeddings", () -> {
      var answer = client.embeddings().create(
          EmbeddingCreateParams.builder().model("embed").inputOfArrayOfStrings(List.of("one", "two")).build());
      Matrix.expect(answer.data().size() == 2 && !answer.data().get(0).embedding().isEmpty(), "not two");
    });
    cases.put("list", () -> Matrix.expect(
        client.models().list().data().stream().anyMatch(model -> model.id().equals("plain:latest")), "not listed"));
    cases.put("abort", () -> {
      try (var stream = client.chat().completions().createStreaming(asked("slow", Matrix.text).maxTokens(900).build())) {
        stream.stream().findFirst().get();
      }
    });
    cases.put("401", () -> Matrix.refusal(
        UnauthorizedException.class, () -> chat(Matrix.wrongKey, "plain", Matrix.text)));
    cases.put("403", () -> Matrix.refusal(
        PermissionDeniedException.class, () -> chat(Matrix.key, Matrix.forbiddenModel, Matrix.text)));
    cases.put("413", () -> Matrix.expect(Matrix.refusal(
        OpenAIServiceException.class, () -> chat(Matrix.key, "plain", Matrix.tooLong)).statusCode() == 413, "another status"));
    cases.put("429", () -> Matrix.expect(Matrix.refusal(
        RateLimitException.class, () -> chat(Matrix.limitedKey, "plain", Matrix.text))
            .type().get().equals("budget_exceeded"), "another type"));
    cases.put("retry-after", () -> {
      var error = Matrix.refusal(RateLimitException.class, () -> chat(Matrix.limitedKey, "plain", Matrix.text));
      Matrix.expect(Integer.parseInt(error.headers().values("Retry-After").get(0)) >= 1, "no Retry-After");
    });
    Matrix.run("openai-java", OpenAIOkHttpClient.class, cases);
  }
}
