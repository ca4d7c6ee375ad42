import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;

/** The cases that every client is asked to do. */
final class Matrix {
  static final String url = System.getenv("TOLLGATE_URL");
  static final String key = System.getenv("TOLLGATE_KEY");
  static final String wrongKey = System.getenv("TOLLGATE_WRONG_KEY");
  static final String limitedKey = System.getenv("TOLLGATE_LIMITED_KEY");
  static final String text = "Say hello.";
  static final String tooLong = "x".repeat(300_000);
  static final String forbiddenModel = "nobody/has:this";
  static final List<String> kinds = List.of("a", "b");

  /** The client has no function for it. */
  static final class NotOffered extends RuntimeException {
    NotOffered(String why) {
      super(why);
    }
  }

  interface Case {
    void ask() throws Exception;
  }

  static void expect(boolean truth, String what) {
    if (!truth) throw new IllegalStateException(what);
  }

  /** The error that `call` throws; it has to be a `type`. */
  static <E extends Throwable> E refusal(Class<E> type, Callable<?> call) throws Exception {
    try {
      call.call();
    } catch (Exception error) {
      for (Throwable cause = error; cause != null; cause = cause.getCause())
        if (type.isInstance(cause)) return type.cast(cause);
      throw error;
    }
    throw new IllegalStateException("not refused");
  }

  private static String json(String text) {
    StringBuilder out = new StringBuilder("\"");
    for (char c : text.toCharArray())
      out.append(c == '"' || c == '\\' || c < ' ' ? String.format("\\u%04x", (int) c) : c);
    return out.append('"').toString();
  }

  /** The version is in the name of the client's jar. */
  private static String versionOf(Class<?> type) {
    String jar = type.getProtectionDomain().getCodeSource().getLocation().getPath();
    return jar.replaceAll(".*-(\\d[\\d.]*)\\.jar", "$1");
  }

  /** One line of JSON for each case. */
  static void run(String client, Class<?> type, Map<String, Case> cases) {
    cases.forEach(
        (name, ask) -> {
          String result = "works";
          String detail = "";
          try {
            ask.ask();
          } catch (NotOffered why) {
            result = "not offered";
            detail = why.getMessage();
          } catch (Throwable error) {
            result = "fails";
            detail = error.toString();
          }
          System.out.printf(
              "{\"client\":%s,\"version\":%s,\"case\":%s,\"result\":%s,\"detail\":%s}%n",
              json(client), json(versionOf(type)), json(name), json(result),
              json(detail.substring(0, Math.min(600, detail.length()))));
        });
  }

  public static void main(String[] words) throws IOException {
    switch (words[0]) {
      case "openai-java" -> OpenAi.run();
      case "langchain4j-open-ai" -> LangChain.runOpenAi();
      default -> LangChain.runOllama();
    }
    // Threads of the clients would keep the process for a minute.
    System.exit(0);
  }
}
