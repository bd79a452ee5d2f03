// Reads bodies of incoming webhooks, a file each, by the type that Slack's most used library for Go has of them, and says
// what in them has no place there: unknown fields, values of another type, no text. What Slack's own documentation bounds
// is looked at, too.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/slack-go/slack"
)

// Slack cuts a longer text (https://docs.slack.dev/changelog/2018-04-truncating-really-long-messages).
const longest = 40_000

func main() {
	failed := false
	for _, path := range os.Args[1:] {
		message, err := read(path)
		if err != nil {
			fmt.Printf("%s: %s\n", path, err)
			failed = true
			continue
		}
		fmt.Println(message.Text)
	}
	if failed {
		os.Exit(1)
	}
}

// read gives the message in a file, or what is wrong with it.
func read(path string) (*slack.WebhookMessage, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(raw) {
		return nil, errors.New("it is not UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	var message slack.WebhookMessage
	if err := decoder.Decode(&message); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the message")
	}
	switch characters := utf8.RuneCountInString(message.Text); {
	case characters == 0:
		// Slack answers "no_text".
		return nil, errors.New("it has neither text nor blocks")
	case characters > longest:
		return nil, fmt.Errorf("its text has %d characters, and Slack cuts it at %d", characters, longest)
	}
	return &message, nil
}
