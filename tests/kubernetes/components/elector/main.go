// Command elector is a controller as many are: client-go's leader election, unmodified, and writes
// without a fence. It keeps a counter in the ConfigMap ledger, each write based on the one before,
// and stops itself before a write if STOP_AT names it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const ledger = "ledger"

func main() {
	log.SetFlags(0)
	namespace := os.Getenv("NAMESPACE")
	seconds, err := strconv.ParseFloat(os.Getenv("LEASE_SECONDS"), 64)
	if err != nil {
		seconds = 15
	}
	lasts := time.Duration(seconds * float64(time.Second))
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		log.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	// As libraries on top of client-go have it.
	election := rest.CopyConfig(config)
	election.ContentType = k8sruntime.ContentTypeProtobuf
	election.UserAgent = "leader-election"
	identity := fmt.Sprintf("client-go-%d", os.Getpid())
	fmt.Println("I am", identity)

	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: "client-go", Namespace: namespace},
		Client:     kubernetes.NewForConfigOrDie(election).CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   lasts,
		RenewDeadline:   lasts * 2 / 3,
		RetryPeriod:     lasts * 2 / 15,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				fmt.Println("leading:", identity)
				lead(ctx, client, namespace)
			},
			OnStoppedLeading: func() { fmt.Println("stopped") },
			OnNewLeader:      func(leader string) { fmt.Println("leader:", leader) },
		},
	})
}

func lead(ctx context.Context, client kubernetes.Interface, namespace string) {
	maps := client.CoreV1().ConfigMaps(namespace)
	found, err := maps.Get(ctx, ledger, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ledger}}
		found, err = maps.Create(ctx, made, metav1.CreateOptions{})
	}
	if err != nil {
		log.Fatal(err)
	}
	count, _ := strconv.Atoi(found.Data["count"])
	for written := 1; ctx.Err() == nil; written++ {
		count++
		if os.Getenv("STOP_AT") == strconv.Itoa(written) {
			fmt.Println("stopping before patch", written, "is sent")
			// It has looked at its context a moment ago. The signal goes to this very thread, which
			// would else go on until another one has taken it; all stand until SIGCONT.
			runtime.LockOSThread()
			syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(os.Getpid()), uintptr(syscall.Gettid()), uintptr(syscall.SIGSTOP))
			runtime.UnlockOSThread()
		}
		patch := fmt.Sprintf(`{"data":{"count":"%d","by":"%d"}}`, count, os.Getpid())
		// Not under ctx: a write that is under way when the lease is lost is not called back.
		_, err := maps.Patch(context.Background(), ledger, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			fmt.Println("failed:", err)
			return
		}
		fmt.Println("wrote", count)
		time.Sleep(100 * time.Millisecond)
	}
}
