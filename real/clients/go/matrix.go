// The cases that every client is asked to do. A client's file hands its own to run.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

var (
	url        = os.Getenv("TOLLGATE_URL")
	key        = os.Getenv("TOLLGATE_KEY")
	wrongKey   = os.Getenv("TOLLGATE_WRONG_KEY")
	limitedKey = os.Getenv("TOLLGATE_LIMITED_KEY")
)

const (
	text           = "Say hello."
	forbiddenModel = "nobody/has:this"
	schema         = `{"type":"object","properties":{"kind":{"type":"string","enum":["a","b"]}},"required":["kind"],"additionalProperties":false}`
)

var tooLong = strings.Repeat("x", 300_000)

type notOffered string

func (why notOffered) Error() string { return string(why) }

// The client has no function for it.
func no(why string) func() error { return func() error { return notOffered(why) } }

func expect(truth bool, what string) error {
	if truth {
		return nil
	}
	return errors.New(what)
}

func versionOf(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if dep.Path == module {
			return strings.TrimPrefix(dep.Version, "v")
		}
	}
	return ""
}

type testCase struct {
	name string
	ask  func() error
}

type result struct {
	Client  string `json:"client"`
	Version string `json:"version"`
	Case    string `json:"case"`
	Result  string `json:"result"`
	Detail  string `json:"detail"`
}

// One line of JSON for each case.
func run(client, module string, cases []testCase) {
	for _, one := range cases {
		line := result{client, versionOf(module), one.name, "works", ""}
		if err := one.ask(); err != nil {
			var lacks notOffered
			line.Detail = fmt.Sprintf("%.600s", err)
			if line.Result = "fails"; errors.As(err, &lacks) {
				line.Result = "not offered"
			}
		}
		written, _ := json.Marshal(line)
		fmt.Println(string(written))
	}
}

func main() {
	switch os.Args[1] {
	case "ollama":
		runOllama()
	case "openai":
		runOpenAI()
	}
}
