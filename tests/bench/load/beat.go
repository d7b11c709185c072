package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/etcdserver/etcdserverpb"
	"google.golang.org/grpc"
)

// beat writes again and again, one write at a time, 200 ms for each try, at the next replica after one that failed: what a client sees that wants to write.
// "mark": the longest time between two successes since the last mark, with the time before the first and after the last.
func beat() {
	var cs []*grpc.ClientConn
	for _, e := range strings.Split(*endpoints, ",") {
		cs = append(cs, dial(e))
	}
	var mu sync.Mutex
	var gap time.Duration
	ok, failed := 0, 0
	last := time.Now()
	go func() {
		for at := 0; ; {
			c, cancel := grpcTimeout(200 * time.Millisecond)
			_, err := pb.NewKVClient(cs[at%len(cs)]).Put(c, &pb.PutRequest{Key: []byte(*prefix + "/beat"), Value: []byte("x")})
			cancel()
			now := time.Now()
			mu.Lock()
			if err == nil {
				ok++
				if now.Sub(last) > gap {
					gap = now.Sub(last)
				}
				last = now
			} else {
				failed++
				at++
			}
			mu.Unlock()
			if err != nil {
				time.Sleep(2 * time.Millisecond)
			}
		}
	}()
	words(func(word string) {
		mu.Lock()
		if since := time.Since(last); since > gap {
			gap = since
		}
		fmt.Printf("{\"gap_ms\":%.1f,\"ok\":%d,\"failed\":%d}\n", float64(gap)/1e6, ok, failed)
		gap, ok, failed = 0, 0, 0
		last = time.Now()
		mu.Unlock()
	})
}
