// A load of one kind on one replica: `load ENDPOINT put|get|keepalive CLIENTS CONNECTIONS SECONDS` prints operations per second. TEST_TLS_CA, TEST_TLS_CERT and
// TEST_TLS_KEY make it TLS.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io/ioutil"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/clientv3"
	pb "go.etcd.io/etcd/etcdserver/etcdserverpb"
)

var ctx = context.Background()

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	must(err)
	return n
}

func security() *tls.Config {
	if os.Getenv("TEST_TLS_CA") == "" {
		return nil
	}
	ca, err := ioutil.ReadFile(os.Getenv("TEST_TLS_CA"))
	must(err)
	cert, err := tls.LoadX509KeyPair(os.Getenv("TEST_TLS_CERT"), os.Getenv("TEST_TLS_KEY"))
	must(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}}
}

// worker returns what one client does again and again.
func worker(c *clientv3.Client, op string, i int) func() error {
	key, value := fmt.Sprintf("k/%d", i), string(make([]byte, 256))
	switch op {
	case "put":
		return func() error { _, err := c.Put(ctx, key, value); return err }
	case "get":
		_, err := c.Put(ctx, key, value)
		must(err)
		return func() error { _, err := c.Get(ctx, key); return err }
	case "keepalive":
		lease, err := c.Grant(ctx, 600)
		must(err)
		stream, err := pb.NewLeaseClient(c.ActiveConnection()).LeaseKeepAlive(ctx)
		must(err)
		return func() error {
			if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(lease.ID)}); err != nil {
				return err
			}
			_, err := stream.Recv()
			return err
		}
	}
	panic(op)
}

func main() {
	clients, seconds := number(os.Args[3]), number(os.Args[5])
	conns := make([]*clientv3.Client, number(os.Args[4]))
	for i := range conns {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Args[1]}, DialTimeout: 10 * time.Second, TLS: security()})
		must(err)
		conns[i] = c
	}
	var done int64
	var all sync.WaitGroup
	var over int32
	works := make([]func() error, clients)
	for i := range works {
		works[i] = worker(conns[i%len(conns)], os.Args[2], i)
	}
	began := time.Now()
	for _, work := range works {
		all.Add(1)
		go func(work func() error) {
			defer all.Done()
			for atomic.LoadInt32(&over) == 0 {
				must(work())
				atomic.AddInt64(&done, 1)
			}
		}(work)
	}
	time.Sleep(time.Duration(seconds) * time.Second)
	atomic.StoreInt32(&over, 1)
	all.Wait()
	fmt.Printf("%.0f\n", float64(done)/time.Since(began).Seconds())
}
