// What go-redis gets from Hotrow over its Redis protocol, one line for each question. With the
// argument `near`: prints the records of the keys that it is given, from copies in its memory.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	address, key := os.Getenv("HOTROW_REDIS_ADDRESS"), os.Getenv("HOTROW_KEY")
	if len(os.Args) > 1 && os.Args[1] == "near" {
		near(ctx, redis.NewClient(&redis.Options{
			Addr: address, Protocol: 3, ClientSideCacheConfig: &redis.ClientSideCacheConfig{},
		}))
		return
	}
	// RESP3 is the default; 2 is tried too.
	for _, protocol := range []int{3, 2} {
		client := redis.NewClient(&redis.Options{
			Addr: address, Password: key, Protocol: protocol, MaxRetries: -1,
		})
		fmt.Println("get", one(client.Get(ctx, "products:1").Result()))
		fmt.Println("missing", one(client.Get(ctx, "products:9").Result()))
		records, err := client.MGet(ctx, "products:1", "products:9", "products:2").Result()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("mget", records[0], records[1] == nil, records[2])
		count, err := client.Exists(ctx, "products:1", "products:9").Result()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("exists", count)
		fmt.Println("wrong", client.Set(ctx, "products:1", "x", 0).Err())
		client.Close()
	}
	stranger := redis.NewClient(&redis.Options{Addr: address, Password: "hrk_wrong", MaxRetries: -1})
	fmt.Println("auth", stranger.Get(ctx, "products:1").Err())
}

func near(ctx context.Context, client *redis.Client) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		record := one(client.Get(ctx, lines.Text()).Result())
		if record == "null" {
			record = "missing"
		}
		fmt.Println(record)
	}
}

func one(record string, err error) string {
	switch {
	case err == redis.Nil:
		return "null"
	case err != nil:
		log.Fatal(err)
	}
	return record
}
