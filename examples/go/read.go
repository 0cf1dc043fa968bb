// Reads a record twice: read COLLECTION ID. See ../README.md.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"
)

// Client reads records, and remembers the newest position that it has seen.
type Client struct {
	URL, Key, Position string
	http               http.Client
}

// Problem is the document of an error.
type Problem struct {
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Status int    `json:"status"`
}

func (p Problem) Error() string { return fmt.Sprintf("%d: %s", p.Status, p.Title) }

// Get returns a record and its entity tag; nil in place of the record if etag is still its own.
// The transport asks for gzip and decompresses by itself.
func (c *Client) Get(collection, id, etag string) (json.RawMessage, string, error) {
	request, err := http.NewRequest("GET", c.URL+"/"+collection+"/"+url.PathEscape(id), nil)
	if err != nil {
		return nil, "", err
	}
	set := func(name, value string) {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	if c.Key != "" {
		set("Authorization", "Bearer "+c.Key)
	}
	set("Hotrow-Min-Position", c.Position)
	set("If-None-Match", etag)
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, "", err
	}
	switch answer.StatusCode {
	case http.StatusOK, http.StatusNotModified:
		c.Position = answer.Header.Get("Hotrow-Position")
		if answer.StatusCode == http.StatusNotModified {
			return nil, etag, nil
		}
		return body, answer.Header.Get("ETag"), nil
	default:
		problem := Problem{Status: answer.StatusCode}
		_ = json.Unmarshal(body, &problem)
		return nil, "", problem
	}
}

func run(collection, id string) error {
	address := os.Getenv("HOTROW_URL")
	if address == "" {
		address = "http://127.0.0.1:8080"
	}
	client := Client{URL: address, Key: os.Getenv("HOTROW_KEY")}
	client.http.Timeout = 10 * time.Second
	record, etag, err := client.Get(collection, id, "")
	if err != nil {
		return err
	}
	fmt.Println(string(record))
	fmt.Println("position", client.Position)
	again, _, err := client.Get(collection, id, etag)
	if err != nil {
		return err
	}
	if again == nil {
		again = json.RawMessage("unchanged")
	}
	fmt.Println(string(again))
	return nil
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: read COLLECTION ID")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
