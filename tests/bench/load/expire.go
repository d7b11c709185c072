package main

import (
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/etcdserver/etcdserverpb"
	"google.golang.org/grpc"
)

// expire makes -n leases with a key each, keeps all alive at once as the last thing, and then falls silent. How late is the end of each key, counted from its
// lease's due time: the TTL after its last keep-alive was answered; and whether one was early, counted from when that was sent.
func expire() {
	cs := dialAll(*conns)
	ids := make([]int64, *n)
	sent, answered, gone := make([]time.Time, *n), make([]time.Time, *n), make([]time.Time, *n)
	keyPrefix := *prefix + "/x/"
	parallel(*n, func(i int) {
		err := insist(cs, i, func(c *grpc.ClientConn) error {
			r, err := pb.NewLeaseClient(c).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: *ttl})
			if err != nil {
				return err
			}
			ids[i] = r.ID
			_, err = pb.NewKVClient(c).Put(ctx, &pb.PutRequest{Key: []byte(fmt.Sprintf("%s%06d", keyPrefix, i)), Lease: r.ID})
			return err
		})
		if err != nil {
			die("grant: %v", err)
		}
	})
	ends := watchEnds(cs[0], keyPrefix, gone)
	began := time.Now()
	var wg sync.WaitGroup
	for c := range cs {
		wg.Add(1)
		go func(c int) {
			defer wg.Done()
			stream, err := pb.NewLeaseClient(cs[c]).LeaseKeepAlive(ctx)
			if err != nil {
				die("keep-alive: %v", err)
			}
			go func() {
				for i := c; i < *n; i += len(cs) {
					sent[i] = time.Now()
					if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: ids[i]}); err != nil {
						die("keep-alive: %v", err)
					}
				}
			}()
			for i := c; i < *n; i += len(cs) {
				r, err := stream.Recv()
				if err != nil || r.TTL <= 0 {
					die("keep-alive of lease %d: %v %v", i, r, err)
				}
				answered[i] = time.Now()
			}
		}(c)
	}
	wg.Wait()
	burst := time.Since(began)
	select {
	case <-ends:
	case <-time.After(time.Duration(*ttl+60) * time.Second):
		die("not all leases have ended")
	}
	late := &latencies{}
	early, latest := 0, time.Time{}
	for i := range gone {
		late.add(gone[i].Sub(answered[i].Add(time.Duration(*ttl) * time.Second)))
		if gone[i].Sub(sent[i]) < time.Duration(*ttl)*time.Second {
			early++
		}
		if gone[i].After(latest) {
			latest = gone[i]
		}
	}
	m := map[string]interface{}{"kind": "expire", "leases": *n, "ttl": *ttl, "burst_ms": float64(burst) / 1e6, "early": early}
	late.take(m, "late")
	tell(m)
}

// watchEnds notes when each key's end is seen; the channel is closed once all are gone.
func watchEnds(c *grpc.ClientConn, keyPrefix string, gone []time.Time) chan bool {
	end := []byte(keyPrefix)
	end[len(end)-1]++
	w, err := pb.NewWatchClient(c).Watch(ctx)
	if err == nil {
		err = w.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte(keyPrefix), RangeEnd: end,
			Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}}}})
	}
	if err == nil {
		_, err = w.Recv()
	}
	if err != nil {
		die("watch: %v", err)
	}
	all := make(chan bool)
	go func() {
		for left := len(gone); left > 0; {
			r, err := w.Recv()
			if err != nil {
				die("watch: %v", err)
			}
			at := time.Now()
			for _, e := range r.Events {
				var i int
				fmt.Sscanf(string(e.Kv.Key[len(keyPrefix):]), "%d", &i)
				gone[i] = at
				left--
			}
		}
		close(all)
	}()
	return all
}
