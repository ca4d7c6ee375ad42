// A chat with the client that oapi-codegen made of openapi.json, on each surface of /v1.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"tollgate/generated/client"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func read[T any](text string) T {
	var value T
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		panic(err)
	}
	return value
}

func main() {
	withKey := client.WithRequestEditorFn(func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+os.Getenv("KEY"))
		return nil
	})
	api := must(client.NewClientWithResponses(os.Getenv("URL"), withKey))
	background := context.Background()

	chat := must(api.CreateChatCompletionWithResponse(background, read[client.ChatCompletionRequest](`{"model":"m","messages":[{"role":"user","content":"Hi"}]}`)))
	fmt.Println(*chat.JSON200.Choices[0].Message.Content)
	response := must(api.CreateResponseWithResponse(background, read[client.ResponseRequest](`{"model":"m","input":"Hi"}`)))
	item := must(response.JSON200.Output[0].AsResponseResourceOutputMessage())
	fmt.Println(item.Content[0].Text)
	message := must(api.CreateMessageWithResponse(background, read[client.MessagesRequest](`{"model":"m","max_tokens":8,"messages":[{"role":"user","content":"Hi"}]}`)))
	block := must(message.JSON200.Content[0].AsMessageContentText())
	fmt.Println(block.Text)
}
