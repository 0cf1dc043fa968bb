// Goroutines: goroutines PORT cpu|mutex|sleep|bucket N
//
// N is the time of a request in µs, or the rate of the bucket, which answers 429 beyond it.
package main

import (
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

func spin(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
	}
}

func main() {
	n, err := strconv.Atoi(os.Args[3])
	if err != nil {
		panic(err)
	}
	d := time.Duration(n) * time.Microsecond
	var mutex sync.Mutex
	next := time.Now()
	takes := func() bool {
		mutex.Lock()
		defer mutex.Unlock()
		now := time.Now()
		if next.Before(now.Add(-20 * time.Millisecond)) {
			next = now.Add(-20 * time.Millisecond)
		}
		if next.After(now) {
			return false
		}
		next = next.Add(time.Second / time.Duration(n))
		return true
	}
	answer := func(w http.ResponseWriter, _ *http.Request) {
		switch os.Args[2] {
		case "cpu":
			spin(d)
		case "mutex":
			mutex.Lock()
			spin(d)
			mutex.Unlock()
		case "sleep":
			time.Sleep(d)
		case "bucket":
			if !takes() {
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
		}
		w.Write([]byte("ok"))
	}
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[1], http.HandlerFunc(answer)))
}
