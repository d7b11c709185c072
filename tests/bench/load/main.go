// load puts load on any server that speaks etcd's API: load -ep HOST:PORT,... KIND. It prints lines of JSON. Kinds that run until they are told take
// words on standard input ("mark", "report", ...), and end with it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/etcdserver/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	endpoints   = flag.String("ep", "127.0.0.1:2379", "endpoints")
	conns       = flag.Int("conns", 10, "connections, spread over the endpoints")
	clients     = flag.Int("clients", 100, "calls at a time")
	n           = flag.Int("n", 10000, "leases, keys, watches")
	ttl         = flag.Int64("ttl", 60, "TTL of leases, seconds")
	every       = flag.Float64("every", 4, "seconds between two keep-alives of a lease")
	rate        = flag.Float64("rate", 200, "calls a second")
	dur         = flag.Float64("dur", 10, "seconds")
	size        = flag.Int("size", 1000, "bytes of a value")
	prefix      = flag.String("prefix", "load", "what keys and locks begin with")
	locks       = flag.Int("locks", 0, "how many sessions hold a lock each")
	ops         = flag.Int("ops", 1, "puts in each call of a flood")
	outstanding = flag.Int("outstanding", 1000, "calls at a time on each connection")
)

var ctx = context.Background()

var kinds = map[string]func(){
	"beat":     beat,
	"sessions": sessions,
	"expire":   expire,
	"writes":   writes,
	"acquires": acquires,
	"fill":     fill,
	"flood":    flood,
	"frees":    frees,
	"watches":  watches,
	"pairs":    pairs,
	"queue":    queue,
}

func die(format string, args ...interface{}) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

func tell(m map[string]interface{}) {
	b, err := json.Marshal(m)
	if err != nil {
		die("%v", err)
	}
	fmt.Println(string(b))
}

// words calls f with each line of standard input, until its end.
func words(f func(word string)) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		f(strings.TrimSpace(in.Text()))
	}
}

func dial(endpoint string) *grpc.ClientConn {
	c, err := grpc.Dial(endpoint, grpc.WithInsecure(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)), grpc.WithBackoffMaxDelay(300*time.Millisecond))
	if err != nil {
		die("%v", err)
	}
	return c
}

func dialAll(n int) []*grpc.ClientConn {
	eps := strings.Split(*endpoints, ",")
	cs := make([]*grpc.ClientConn, n)
	for i := range cs {
		cs[i] = dial(eps[i%len(eps)])
	}
	return cs
}

func retryable(err error) bool {
	c := status.Code(err)
	return c == codes.Unavailable || c == codes.DeadlineExceeded || c == codes.Canceled
}

// insist repeats a call that may be repeated, each time on the next connection.
func insist(cs []*grpc.ClientConn, at int, call func(c *grpc.ClientConn) error) error {
	var err error
	for try := 0; try < 200; try++ {
		if err = call(cs[(at+try)%len(cs)]); err == nil || !retryable(err) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// parallel runs f(0) to f(n-1), *clients at a time.
func parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int, 1024)
	for w := 0; w < *clients; w++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range next {
				f(i)
			}
		}()
	}
	for i := 0; i < n; i++ {
		next <- i
	}
	close(next)
	wg.Wait()
}

// latencies in milliseconds.
type latencies struct {
	mu sync.Mutex
	ms []float64
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	l.ms = append(l.ms, float64(d)/1e6)
	l.mu.Unlock()
}

// take empties it into m: NAME_p50_ms, NAME_p99_ms, NAME_max_ms, NAME_n.
func (l *latencies) take(m map[string]interface{}, name string) {
	l.mu.Lock()
	ms := l.ms
	l.ms = nil
	l.mu.Unlock()
	sort.Float64s(ms)
	m[name+"_n"] = len(ms)
	if len(ms) == 0 {
		return
	}
	at := func(p float64) float64 {
		i := int(float64(len(ms)) * p)
		if i >= len(ms) {
			i = len(ms) - 1
		}
		return float64(int(ms[i]*100+0.5)) / 100
	}
	m[name+"_p50_ms"], m[name+"_p99_ms"], m[name+"_max_ms"] = at(0.5), at(0.99), at(1)
}

func fill() {
	cs := dialAll(*conns)
	value := make([]byte, *size)
	began := time.Now()
	parallel(*n, func(i int) {
		err := insist(cs, i, func(c *grpc.ClientConn) error {
			_, err := pb.NewKVClient(c).Put(ctx, &pb.PutRequest{Key: []byte(fmt.Sprintf("%s/%08d", *prefix, i)), Value: value})
			return err
		})
		if err != nil {
			die("fill: %v", err)
		}
	})
	tell(map[string]interface{}{"kind": "fill", "n": *n, "seconds": time.Since(began).Seconds()})
}

func main() {
	flag.Parse()
	kind := kinds[flag.Arg(0)]
	if kind == nil {
		die("usage: load -ep ... beat|sessions|expire|writes|acquires|fill|flood|watches|pairs|queue")
	}
	kind()
}
