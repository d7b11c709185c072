package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/etcdserver/etcdserverpb"
	"google.golang.org/grpc"
)

type watching struct {
	cs      []*grpc.ClientConn
	mu      sync.Mutex
	next    []int64 // by key: the revision to go on from
	told    []int64 // by key: how often
	total   int64
	created int64
	broke   int64
}

func watchKey(i int) []byte { return []byte(fmt.Sprintf("%s/w/%06d", *prefix, i)) }

// watches has -n watches of a key each on -conns streams; a stream that breaks is opened anew at the next replica, from where each watch was. "report" tells how
// many exist and have been told of how much; "write" writes every key once and waits until all are told.
func watches() {
	w := &watching{cs: dialAll(*conns), next: make([]int64, *n), told: make([]int64, *n)}
	began := time.Now()
	for i := 0; i < *conns; i++ {
		go w.keep(i)
	}
	for atomic.LoadInt64(&w.created) < int64(*n) {
		time.Sleep(10 * time.Millisecond)
	}
	tell(map[string]interface{}{"kind": "watches", "n": *n, "seconds": time.Since(began).Seconds()})
	words(func(word string) {
		if word == "write" {
			w.write()
			return
		}
		tell(map[string]interface{}{"created": atomic.LoadInt64(&w.created), "told": atomic.LoadInt64(&w.total), "streams_broken": atomic.LoadInt64(&w.broke)})
	})
}

func (w *watching) keep(at int) {
	for try := 0; ; try++ {
		stream, err := pb.NewWatchClient(w.cs[(at+try)%len(w.cs)]).Watch(ctx)
		if err == nil {
			w.run(stream, at)
			atomic.AddInt64(&w.broke, 1)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (w *watching) run(stream pb.Watch_WatchClient, at int) {
	ids := map[int64]int{}
	var order []int
	for i := at; i < *n; i += len(w.cs) {
		order = append(order, i)
	}
	go func() {
		for _, i := range order {
			w.mu.Lock()
			from := w.next[i]
			w.mu.Unlock()
			if stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: watchKey(i), StartRevision: from}}}) != nil {
				return
			}
		}
	}()
	made := 0
	for {
		r, err := stream.Recv()
		if err != nil {
			atomic.AddInt64(&w.created, -int64(made))
			return
		}
		if r.Canceled {
			die("a watch was cancelled: %v", r)
		}
		if r.Created { // in the order of the requests
			ids[r.WatchId] = order[made]
			made++
			atomic.AddInt64(&w.created, 1)
			w.mu.Lock()
			if i := ids[r.WatchId]; w.next[i] == 0 {
				w.next[i] = r.Header.Revision + 1
			}
			w.mu.Unlock()
		}
		for _, e := range r.Events {
			i := ids[r.WatchId]
			w.mu.Lock()
			if e.Kv.ModRevision < w.next[i] {
				die("key %d: revision %d again, after %d", i, e.Kv.ModRevision, w.next[i]-1)
			}
			w.next[i] = e.Kv.ModRevision + 1
			w.told[i]++
			w.mu.Unlock()
			atomic.AddInt64(&w.total, 1)
		}
	}
}

func (w *watching) write() {
	began := time.Now()
	w.mu.Lock()
	want := make([]int64, *n)
	for i := range want {
		want[i] = w.told[i] + 1
	}
	w.mu.Unlock()
	const batch = 100
	parallel((*n+batch-1)/batch, func(b int) {
		var ops []*pb.RequestOp
		for i := b * batch; i < (b+1)*batch && i < *n; i++ {
			ops = append(ops, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: watchKey(i), Value: []byte("x")}}})
		}
		err := insist(w.cs, b, func(c *grpc.ClientConn) error {
			_, err := pb.NewKVClient(c).Txn(ctx, &pb.TxnRequest{Success: ops})
			return err
		})
		if err != nil {
			die("write: %v", err)
		}
	})
	written := time.Since(began).Seconds()
	missing := *n
	for limit := time.Now().Add(60 * time.Second); missing > 0 && time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		missing = 0
		w.mu.Lock()
		for i := range want {
			if w.told[i] < want[i] {
				missing++
			}
		}
		w.mu.Unlock()
	}
	tell(map[string]interface{}{"written_seconds": written, "told_seconds": time.Since(began).Seconds(), "missing": missing})
}
