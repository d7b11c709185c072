// `controller ENDPOINTS ELECTION NAME RESOURCE-PORT`: ../controller.py in Go, through stubs generated from api/proto. What it does, and why that is safe, is told there.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io/ioutil"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "holdfast/etcdserverpb"
	election "holdfast/v3electionpb"
)

const ttl = 3 * time.Second

var state = []byte("controller/state")

func say(format string, args ...interface{}) { fmt.Printf(format+"\n", args...) }

func must(err error) {
	if err != nil {
		say("failed %v", err)
		os.Exit(1)
	}
}

// security is as the environment says.
func security() grpc.DialOption {
	file := os.Getenv("TEST_TLS_CA")
	if file == "" {
		return grpc.WithInsecure()
	}
	ca, err := ioutil.ReadFile(file)
	must(err)
	cert, err := tls.LoadX509KeyPair(os.Getenv("TEST_TLS_CERT"), os.Getenv("TEST_TLS_KEY"))
	must(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, Certificates: []tls.Certificate{cert}}))
}

// cell is its replicas; a call goes to the one that answered last, and to the next one when it does not.
type cell struct {
	conns []*grpc.ClientConn
	at    int32
	user  string
	token atomic.Value // a string
}

func open(endpoints string) *cell {
	c := &cell{user: os.Getenv("TEST_USER")}
	c.token.Store("")
	quick := backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.5, MaxDelay: 300 * time.Millisecond}
	for _, e := range strings.Split(endpoints, ",") {
		conn, err := grpc.Dial(e, security(), grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick, MinConnectTimeout: 5 * time.Second}))
		must(err)
		c.conns = append(c.conns, conn)
	}
	if c.user != "" {
		c.logIn()
	}
	return c
}

func (c *cell) context(timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx := context.Background()
	if token := c.token.Load().(string); token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "token", token)
	}
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout)
}

func (c *cell) conn(i int32) *grpc.ClientConn { return c.conns[int(i)%len(c.conns)] }

// call repeats until somebody answers: only for what may be repeated.
func (c *cell) call(timeout time.Duration, f func(context.Context, *grpc.ClientConn) error) error {
	for {
		at := atomic.LoadInt32(&c.at)
		ctx, cancel := c.context(timeout)
		err := f(ctx, c.conn(at))
		cancel()
		switch code := status.Code(err); {
		case code == codes.Unauthenticated && c.user != "": // a replica that was restarted knows no tokens
			c.logIn()
		case code == codes.Unavailable || code == codes.DeadlineExceeded:
			atomic.StoreInt32(&c.at, at+1)
			time.Sleep(20 * time.Millisecond)
		default:
			return err
		}
	}
}

func (c *cell) logIn() {
	must(c.call(2*time.Second, func(ctx context.Context, conn *grpc.ClientConn) error {
		reply, err := pb.NewAuthClient(conn).Authenticate(ctx, &pb.AuthenticateRequest{Name: c.user, Password: os.Getenv("TEST_PASSWORD")})
		if err == nil {
			c.token.Store(reply.Token)
		}
		return err
	}))
}

type session struct {
	lease int64
	over  chan struct{} // closed when it is not needed any more
}

func (c *cell) session() *session {
	s := &session{over: make(chan struct{})}
	must(c.call(2*time.Second, func(ctx context.Context, conn *grpc.ClientConn) error {
		reply, err := pb.NewLeaseClient(conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: int64(ttl / time.Second)})
		s.lease = reply.GetID()
		return err
	}))
	go func() {
		for {
			select {
			case <-s.over:
				return
			case <-time.After(ttl / 6):
			}
			for i := range c.conns {
				if left, err := c.keepAlive(c.conns[i], s.lease); err == nil {
					if left <= 0 {
						return
					}
					break
				}
			}
		}
	}()
	return s
}

func (c *cell) keepAlive(conn *grpc.ClientConn, lease int64) (int64, error) {
	ctx, cancel := c.context(ttl / 3)
	defer cancel()
	stream, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
	if err != nil {
		return 0, err
	}
	if err = stream.Send(&pb.LeaseKeepAliveRequest{ID: lease}); err != nil {
		return 0, err
	}
	reply, err := stream.Recv()
	return reply.GetTTL(), err
}

// observe says who leads, from whichever replica tells; it goes to the next one when the stream breaks.
func (c *cell) observe(name []byte) {
	last, lastRevision := "", int64(0)
	for at := int32(0); ; at++ {
		ctx, cancel := c.context(0)
		stream, err := election.NewElectionClient(c.conn(at)).Observe(ctx, &election.LeaderRequest{Name: name})
		for err == nil {
			var r *election.LeaderResponse
			if r, err = stream.Recv(); err == nil && (r.Kv.CreateRevision != lastRevision || string(r.Kv.Value) != last) {
				last, lastRevision = string(r.Kv.Value), r.Kv.CreateRevision
				say("sees %s", last)
			}
		}
		cancel()
		time.Sleep(20 * time.Millisecond)
	}
}

// campaign: asking again with the same lease keeps the place in the queue, so it goes to another replica when one dies.
func (c *cell) campaign(name []byte, value string, s *session) (won *election.CampaignResponse, err error) {
	err = c.call(0, func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		won, err = election.NewElectionClient(conn).Campaign(ctx, &election.CampaignRequest{Name: name, Lease: s.lease, Value: []byte(value)})
		return err
	})
	return won, err
}

// resource is what the controllers control. It refuses a token lower than one that it has seen.
type resource struct {
	conn net.Conn
	in   *bufio.Reader
}

func (r *resource) act(token int64, name string, step int64) bool {
	fmt.Fprintf(r.conn, "%d %s %d\n", token, name, step)
	line, err := r.in.ReadString('\n')
	must(err)
	return line == "ok\n"
}

func (c *cell) readState() (step, revision int64) {
	must(c.call(2*time.Second, func(ctx context.Context, conn *grpc.ClientConn) error {
		reply, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: state})
		if kvs := reply.GetKvs(); len(kvs) > 0 {
			n, _ := strconv.ParseInt(strings.Fields(string(kvs[0].Value))[0], 10, 64)
			step, revision = n, kvs[0].ModRevision
		}
		return err
	}))
	return step, revision
}

// writeState: written or not, and whether it still leads. A write that is repeated though it was done is refused by the state's own revision.
func (c *cell) writeState(l *election.LeaderKey, name string, step, revision int64) (written, leads bool) {
	request := &pb.TxnRequest{
		Compare: []*pb.Compare{
			{Key: l.Key, Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_CreateRevision{CreateRevision: l.Rev}},
			{Key: state, Target: pb.Compare_MOD, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_ModRevision{ModRevision: revision}}},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: state, Value: []byte(fmt.Sprintf("%d %d %s", step, l.Rev, name))}}}},
		Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: l.Key}}}},
	}
	must(c.call(2*time.Second, func(ctx context.Context, conn *grpc.ClientConn) error {
		reply, err := pb.NewKVClient(conn).Txn(ctx, request)
		if written = reply.GetSucceeded(); err == nil && !written {
			kvs := reply.Responses[0].GetResponseRange().Kvs
			leads = len(kvs) > 0 && kvs[0].CreateRevision == l.Rev
		}
		return err
	}))
	return written, written || leads
}

func (c *cell) lead(name string, r *resource, won *election.CampaignResponse) {
	for {
		step, revision := c.readState()
		step++
		if !r.act(won.FencingToken, name, step) {
			say("refused %d", step)
			return
		}
		written, leads := c.writeState(won.Leader, name, step, revision)
		if !leads {
			return
		}
		if written {
			say("step %d", step)
		}
		time.Sleep(20 * time.Millisecond) // the work
	}
}

func main() {
	name := os.Args[3]
	conn, err := net.Dial("tcp", "127.0.0.1:"+os.Args[4])
	must(err)
	r := &resource{conn, bufio.NewReader(conn)}
	c := open(os.Args[1])
	go c.observe([]byte(os.Args[2]))
	for {
		s := c.session()
		say("session %x", s.lease)
		won, err := c.campaign([]byte(os.Args[2]), name, s)
		if err != nil {
			say("failed %v", err)
		} else {
			say("leads %d", won.FencingToken)
			c.lead(name, r, won)
			say("deposed")
		}
		close(s.over)
	}
}
