package main

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

func openaiClient(secret string) openai.Client {
	return openai.NewClient(option.WithBaseURL(url+"/v1/"), option.WithAPIKey(secret), option.WithMaxRetries(0))
}

func chatParams(model, text string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:     model,
		Messages:  []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)},
		MaxTokens: openai.Int(8),
	}
}

func openaiError(secret, model, text string) *openai.Error {
	client := openaiClient(secret)
	_, err := client.Chat.Completions.New(context.Background(), chatParams(model, text))
	var refused *openai.Error
	if errors.As(err, &refused) {
		return refused
	}
	return &openai.Error{}
}

func runOpenAI() {
	ctx := context.Background()
	client := openaiClient(key)
	run("openai-go", "github.com/openai/openai-go/v3", []testCase{
		{"chat", func() error {
			answer, err := client.Chat.Completions.New(ctx, chatParams("plain", text))
			if err != nil {
				return err
			}
			// The same through Responses.
			response, err := client.Responses.New(ctx, responses.ResponseNewParams{
				Model: "plain", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(text)}, MaxOutputTokens: openai.Int(16),
			})
			if err != nil {
				return err
			}
			return expect(answer.Usage.CompletionTokens > 0 && response.OutputText() != "", "no text or usage")
		}},
		{"stream", func() error {
			asked := chatParams("plain", text)
			asked.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
			stream, all := client.Chat.Completions.NewStreaming(ctx, asked), openai.ChatCompletionAccumulator{}
			for stream.Next() {
				if !all.AddChunk(stream.Current()) {
					return errors.New("a chunk does not fit")
				}
			}
			if err := stream.Err(); err != nil {
				return err
			}
			return expect(all.Choices[0].Message.Content != "" && all.Usage.CompletionTokens > 0, "no text or usage")
		}},
		{"tools", func() error {
			asked := chatParams("tools", text)
			asked.MaxTokens = openai.Int(60)
			asked.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
				Name:        "get_weather",
				Description: openai.String("The weather in a city"),
				Parameters: shared.FunctionParameters{
					"type":       "object",
					"properties": map[string]any{"city": map[string]string{"type": "string", "description": "a city"}},
					"required":   []string{"city"},
				},
			})}
			answer, err := client.Chat.Completions.New(ctx, asked)
			if err != nil {
				return err
			}
			message := answer.Choices[0].Message
			if len(message.ToolCalls) == 0 {
				return errors.New("no call")
			}
			asked.Messages = append(asked.Messages, message.ToParam(), openai.ToolMessage("sunny", message.ToolCalls[0].ID))
			_, err = client.Chat.Completions.New(ctx, asked)
			if err != nil {
				return err
			}
			return expect(message.ToolCalls[0].Function.Arguments == `{"city":"Paris"}`, "another city")
		}},
		{"structured", func() error {
			asked := chatParams("plain", text)
			asked.MaxTokens = openai.Int(60)
			asked.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{
				JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "answer", Schema: json.RawMessage(schema), Strict: openai.Bool(true)},
			}
			answer, err := client.Chat.Completions.New(ctx, asked)
			if err != nil {
				return err
			}
			var parsed struct{ Kind string }
			return json.Unmarshal([]byte(answer.Choices[0].Message.Content), &parsed)
		}},
		{"embeddings", func() error {
			answer, err := client.Embeddings.New(ctx, openai.EmbeddingNewParams{
				Model: "embed", Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"one", "two"}},
			})
			if err != nil {
				return err
			}
			return expect(len(answer.Data) == 2 && len(answer.Data[0].Embedding) > 0, "not two")
		}},
		{"list", func() error {
			models := client.Models.ListAutoPaging(ctx)
			for models.Next() {
				if models.Current().ID == "plain:latest" {
					return nil
				}
			}
			return errors.New("not listed")
		}},
		{"abort", func() error {
			asked := chatParams("slow", text)
			asked.MaxTokens = openai.Int(900)
			stream := client.Chat.Completions.NewStreaming(ctx, asked)
			if !stream.Next() {
				return stream.Err()
			}
			return stream.Close()
		}},
		{"401", func() error { return expect(openaiError(wrongKey, "plain", text).StatusCode == 401, "another status") }},
		{"403", func() error {
			return expect(openaiError(key, forbiddenModel, text).StatusCode == 403, "another status")
		}},
		{"413", func() error { return expect(openaiError(key, "plain", tooLong).StatusCode == 413, "another status") }},
		{"429", func() error {
			refused := openaiError(limitedKey, "plain", text)
			return expect(refused.StatusCode == 429 && refused.Type == "budget_exceeded", "another error: "+refused.Error())
		}},
		{"retry-after", func() error {
			response := openaiError(limitedKey, "plain", text).Response
			if response == nil {
				return errors.New("no response")
			}
			seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
			return expect(err == nil && seconds >= 1, "no Retry-After")
		}},
	})
}
