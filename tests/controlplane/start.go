package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/component-base/version"

	"controlplane/internal/pki"
	"controlplane/internal/probe"
	"controlplane/internal/supervise"
)

// grace is how long a component may take to end after SIGTERM: the API server
// alone takes 2 to 3 s, on a busy machine more.
const grace = 20 * time.Second

// list is a flag that may be given many times.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

// options are the flags of `start`.
type options struct {
	dir, kubeconfig, serviceCIDR, stages      string
	port, qps                                 int
	noScheduler, noKCM                        bool
	wait                                      time.Duration
	apiArgs, kcmArgs, schedulerArgs, kwokArgs list
}

func parseOptions(args []string) (*options, error) {
	o := &options{}
	fs := flag.NewFlagSet("start", flag.ExitOnError)
	fs.StringVar(&o.dir, "dir", "", "work folder (default: a new temporary one, removed at the end)")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "where to write the admin kubeconfig (default: DIR/admin.kubeconfig)")
	fs.IntVar(&o.port, "port", 0, "kube-apiserver's port on 127.0.0.1 (default: a free one)")
	fs.StringVar(&o.serviceCIDR, "service-cidr", "10.96.0.0/16", "service cluster IP range")
	fs.BoolVar(&o.noScheduler, "no-scheduler", false, "leave kube-scheduler out")
	fs.BoolVar(&o.noKCM, "no-controller-manager", false, "leave kube-controller-manager out")
	fs.IntVar(&o.qps, "client-qps", 1000, "client QPS of scheduler and controller manager (burst: twice)")
	fs.DurationVar(&o.wait, "wait", 2*time.Minute, "longest wait for readiness")
	fs.StringVar(&o.stages, "kwok-stages", "", "run kwok with these stages on nodes annotated kwok.x-k8s.io/node=fake")
	fs.Var(&o.apiArgs, "apiserver-arg", "extra kube-apiserver flag (repeatable)")
	fs.Var(&o.kcmArgs, "kcm-arg", "extra kube-controller-manager flag (repeatable)")
	fs.Var(&o.schedulerArgs, "scheduler-arg", "extra kube-scheduler flag (repeatable)")
	fs.Var(&o.kwokArgs, "kwok-arg", "extra kwok flag (repeatable)")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("start: unexpected argument %q", fs.Arg(0))
	}
	return o, nil
}

// start runs the control plane until a signal comes or a component dies.
func start(args []string) (err error) {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)

	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "cp-"); err != nil {
			return err
		}
		defer func() {
			if err == nil {
				err = os.RemoveAll(o.dir)
			} else {
				fmt.Fprintln(os.Stderr, "controlplane: logs kept in", o.dir)
			}
		}()
	}
	c, err := newCluster(o)
	if err != nil {
		return err
	}
	defer c.group.Stop(grace)
	if err := c.startAll(stop); err != nil {
		return err
	}
	if err := c.announce(os.Stdout); err != nil {
		return err
	}
	return c.group.Run(stop)
}

// cluster is one control plane: where its files are and what runs.
type cluster struct {
	*options
	begun    time.Time
	apiReady time.Duration
	server   string
	conf     string
	ca       *pki.Authority
	group    *supervise.Group
}

// newCluster lays out the folders, certificates and configuration files.
func newCluster(o *options) (*cluster, error) {
	c := &cluster{options: o, begun: time.Now()}
	var err error
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return nil, err
	}
	c.conf = filepath.Join(o.dir, "conf")
	logs := filepath.Join(o.dir, "logs")
	for _, d := range []string{c.conf, logs} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	if o.kubeconfig == "" {
		o.kubeconfig = filepath.Join(o.dir, "admin.kubeconfig")
	}
	if o.port == 0 {
		if o.port, err = freePort(); err != nil {
			return nil, err
		}
	}
	c.server = fmt.Sprintf("https://127.0.0.1:%d", o.port)
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c.group = supervise.New(self, logs)
	if c.ca, err = pki.New(filepath.Join(o.dir, "pki")); err != nil {
		return nil, err
	}
	return c, c.credentials()
}

// credentials writes the certificates, the service account key, and one kubeconfig each.
func (c *cluster) credentials() error {
	serviceIP, err := firstServiceIP(c.serviceCIDR)
	if err != nil {
		return err
	}
	kcm, scheduler := "kube-controller-manager", "kube-scheduler"
	return errors.Join(
		c.ca.Server("apiserver", serviceIP),
		c.ca.Client("admin", "kubernetes-admin", "system:masters"),
		c.ca.Client(kcm, "system:"+kcm),
		c.ca.Client(scheduler, "system:"+scheduler),
		c.ca.Client("front-proxy", "front-proxy-client"),
		c.ca.ServiceAccountKey("sa"),
		c.ca.Kubeconfig(filepath.Join(c.conf, kcm), kcm, c.server),
		c.ca.Kubeconfig(filepath.Join(c.conf, scheduler), scheduler, c.server),
		os.WriteFile(filepath.Join(c.conf, "scheduler.yaml"), []byte(fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q, qps: %d, burst: %d}
`, filepath.Join(c.conf, scheduler), c.qps, 2*c.qps)), 0o600),
	)
}

// startAll starts the components, each once those that it needs are there.
func (c *cluster) startAll(stop <-chan os.Signal) error {
	if err := c.group.Start("etcd", "-dir", filepath.Join(c.dir, "etcd"), "-socket-dir", c.dir); err != nil {
		return err
	}
	if err := c.group.WaitFor(stop, c.wait, func() error { _, err := os.Stat(etcdSocket(c.dir)); return err }); err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	if err := c.group.Start("kube-apiserver", c.apiserverArgs()...); err != nil {
		return err
	}
	if err := c.waitForURL(stop, "kube-apiserver", "/readyz"); err != nil {
		return err
	}
	c.apiReady = time.Since(c.begun)
	if !c.noKCM {
		if err := c.group.Start("kube-controller-manager", c.kcmFlags()...); err != nil {
			return err
		}
	}
	if !c.noScheduler {
		if err := c.group.Start("kube-scheduler", append([]string{
			"--config=" + filepath.Join(c.conf, "scheduler.yaml"),
			"--bind-address=127.0.0.1", "--secure-port=0",
		}, c.schedulerArgs...)...); err != nil {
			return err
		}
	}
	// The default service account is the controller manager's first visible work;
	// pods are refused before it exists.
	if !c.noKCM {
		if err := c.waitForURL(stop, "kube-controller-manager", "/api/v1/namespaces/default/serviceaccounts/default"); err != nil {
			return err
		}
	}
	if err := c.ca.Kubeconfig(c.kubeconfig, "admin", c.server); err != nil {
		return err
	}
	if c.stages == "" {
		return nil
	}
	return c.group.Start("kwok", append([]string{
		"--kubeconfig=" + c.kubeconfig,
		"--config=" + c.stages,
		"--manage-all-nodes=false",
		"--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
		"--node-lease-duration-seconds=40",
		"--node-ip=127.0.0.1", "--cidr=10.244.0.0/16",
		"--server-address=127.0.0.1:0", "--node-port=0",
	}, c.kwokArgs...)...)
}

func (c *cluster) waitForURL(stop <-chan os.Signal, component, path string) error {
	check, err := probe.Get(c.server+path, probe.Files{
		CA: c.ca.Path("ca.crt"), Cert: c.ca.Path("admin.crt"), Key: c.ca.Path("admin.key"),
	})
	if err != nil {
		return err
	}
	if err := c.group.WaitFor(stop, c.wait, check); err != nil {
		return fmt.Errorf("%s: %w", component, err)
	}
	return nil
}

func (c *cluster) apiserverArgs() []string {
	p := c.ca.Path
	return append([]string{
		"--etcd-servers=unix://" + etcdSocket(c.dir),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.port),
		// A loopback address may not be an endpoint of service default/kubernetes.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + c.serviceCIDR,
		"--tls-cert-file=" + p("apiserver.crt"), "--tls-private-key-file=" + p("apiserver.key"),
		"--client-ca-file=" + p("ca.crt"),
		"--requestheader-client-ca-file=" + p("ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + p("front-proxy.crt"), "--proxy-client-key-file=" + p("front-proxy.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + p("sa.pub"), "--service-account-signing-key-file=" + p("sa.key"),
		"--authorization-mode=Node,RBAC",
		"--allow-privileged=true",
	}, c.apiArgs...)
}

func (c *cluster) kcmFlags() []string {
	p := c.ca.Path
	return append([]string{
		"--kubeconfig=" + filepath.Join(c.conf, "kube-controller-manager"),
		"--bind-address=127.0.0.1", "--secure-port=0",
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--root-ca-file=" + p("ca.crt"),
		"--service-account-private-key-file=" + p("sa.key"),
		"--cluster-signing-cert-file=" + p("ca.crt"), "--cluster-signing-key-file=" + p("ca.key"),
		fmt.Sprintf("--kube-api-qps=%d", c.qps), fmt.Sprintf("--kube-api-burst=%d", 2*c.qps),
	}, c.kcmArgs...)
}

// announce writes one line of JSON, which says that all is ready.
func (c *cluster) announce(out *os.File) error {
	pids := map[string]int{}
	for _, child := range c.group.Children() {
		pids[child.Name] = child.Pid()
	}
	return json.NewEncoder(out).Encode(map[string]any{
		"version": version.Get().GitVersion, "server": c.server, "kubeconfig": c.kubeconfig, "dir": c.dir, "pids": pids,
		"apiserver_ready_ms": c.apiReady.Milliseconds(), "ready_ms": time.Since(c.begun).Milliseconds(),
	})
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// firstServiceIP is the address that the API server gives to default/kubernetes.
func firstServiceIP(cidr string) (net.IP, error) {
	_, n, err := net.ParseCIDR(cidr)
	if err != nil {
		return nil, fmt.Errorf("-service-cidr: %w", err)
	}
	ip := append(net.IP(nil), n.IP...)
	ip[len(ip)-1]++
	return ip, nil
}
