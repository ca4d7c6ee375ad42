package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	neturl "net/url"

	"github.com/ollama/ollama/api"
)

// The client sends no key of its own to a server that is not ollama.com.
type withKey string

func (secret withKey) RoundTrip(request *http.Request) (*http.Response, error) {
	request.Header.Set("Authorization", "Bearer "+string(secret))
	return http.DefaultTransport.RoundTrip(request)
}

func ollamaClient(secret string) *api.Client {
	base, _ := neturl.Parse(url)
	return api.NewClient(base, &http.Client{Transport: withKey(secret)})
}

func ollamaChat(ctx context.Context, secret, model, text string, more func(*api.ChatRequest), each func(api.ChatResponse) error) error {
	request := &api.ChatRequest{Model: model, Messages: []api.Message{{Role: "user", Content: text}}, Options: map[string]any{"num_predict": 8}}
	if more != nil {
		more(request)
	}
	return ollamaClient(secret).Chat(ctx, request, each)
}

func ollamaStatus(secret, model, text string) int {
	err := ollamaChat(context.Background(), secret, model, text, nil, func(api.ChatResponse) error { return nil })
	var status api.StatusError
	var unauthorized api.AuthorizationError
	switch {
	case errors.As(err, &status):
		return status.StatusCode
	case errors.As(err, &unauthorized):
		return unauthorized.StatusCode
	default:
		return 0
	}
}

func runOllama() {
	ctx := context.Background()
	collect := func(more func(*api.ChatRequest), model string) ([]api.ChatResponse, error) {
		var all []api.ChatResponse
		err := ollamaChat(ctx, key, model, text, more, func(part api.ChatResponse) error {
			all = append(all, part)
			return nil
		})
		if err == nil && len(all) == 0 {
			err = errors.New("no answer")
		}
		return all, err
	}
	still := false
	run("ollama/api", "github.com/ollama/ollama", []testCase{
		{"chat", func() error {
			all, err := collect(func(request *api.ChatRequest) { request.Stream = &still }, "plain")
			if err != nil {
				return err
			}
			return expect(all[0].EvalCount > 0 && all[0].Message.Content != "", "no text or counts")
		}},
		{"stream", func() error {
			all, err := collect(nil, "plain")
			if err != nil {
				return err
			}
			return expect(len(all) > 1 && all[len(all)-1].Done && all[len(all)-1].EvalCount > 0, "no end")
		}},
		{"tools", func() error {
			var tools api.Tools
			definition := `[{"type":"function","function":{"name":"get_weather","description":"The weather in a city","parameters":{"type":"object","properties":{"city":{"type":"string","description":"a city"}},"required":["city"]}}}]`
			if err := json.Unmarshal([]byte(definition), &tools); err != nil {
				return err
			}
			all, err := collect(func(request *api.ChatRequest) {
				request.Tools = tools
				request.Options = map[string]any{"num_predict": 60}
			}, "tools")
			if err != nil {
				return err
			}
			for _, part := range all {
				for _, call := range part.Message.ToolCalls {
					city, _ := call.Function.Arguments.Get("city")
					return expect(city == "Paris", "another city")
				}
			}
			return errors.New("no call")
		}},
		{"structured", func() error {
			all, err := collect(func(request *api.ChatRequest) {
				request.Stream, request.Format = &still, json.RawMessage(schema)
				request.Options = map[string]any{"num_predict": 60}
			}, "plain")
			if err != nil {
				return err
			}
			var answer struct{ Kind string }
			return json.Unmarshal([]byte(all[0].Message.Content), &answer)
		}},
		{"embeddings", func() error {
			answer, err := ollamaClient(key).Embed(ctx, &api.EmbedRequest{Model: "embed", Input: []string{"one", "two"}})
			if err != nil {
				return err
			}
			return expect(len(answer.Embeddings) == 2, "not two")
		}},
		{"list", func() error {
			listed, err := ollamaClient(key).List(ctx)
			if err != nil {
				return err
			}
			for _, model := range listed.Models {
				if model.Name == "plain:latest" {
					return nil
				}
			}
			return errors.New("not listed")
		}},
		{"abort", func() error {
			leaving, leave := context.WithCancel(ctx)
			err := ollamaChat(leaving, key, "slow", text, func(request *api.ChatRequest) {
				request.Options = map[string]any{"num_predict": 900}
			}, func(api.ChatResponse) error { leave(); return nil })
			return expect(errors.Is(err, context.Canceled), "another error")
		}},
		{"401", func() error { return expect(ollamaStatus(wrongKey, "plain", text) == 401, "another status") }},
		{"403", func() error { return expect(ollamaStatus(key, forbiddenModel, text) == 403, "another status") }},
		{"413", func() error { return expect(ollamaStatus(key, "plain", tooLong) == 413, "another status") }},
		{"429", func() error { return expect(ollamaStatus(limitedKey, "plain", text) == 429, "another status") }},
		{"retry-after", no("its error has no headers")},
	})
}
