// Keeps records in its own memory, which Hotrow keeps fresh (client-side caching of rueidis).
// Reads keys from standard input, one a line, and prints their records. See ../../README.md.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/redis/rueidis"
)

// Bounds what a connection that was cut without a word leaves behind.
const timeToLive = time.Minute

func main() {
	address := os.Getenv("HOTROW_REDIS_ADDRESS")
	if address == "" {
		address = "127.0.0.1:6379"
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{address},
		// The API key or token is the password of the user "default".
		Password:          os.Getenv("HOTROW_KEY"),
		ForceSingleClient: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		get := client.B().Get().Key(lines.Text()).Cache()
		result := client.DoCache(context.Background(), get, timeToLive)
		record, err := result.ToString()
		switch {
		case rueidis.IsRedisNil(err):
			fmt.Println("missing")
		case err != nil:
			// The first word says what to do: see docs/redis.md.
			log.Fatal(err)
		default:
			fmt.Println(record)
		}
	}
}
