// SPDX-License-Identifier: Apache-2.0

// testpod is the static program that the cluster's own tests run in pods.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const account = "/var/run/secrets/kubernetes.io/serviceaccount/"

func main() {
	var err error
	what, rest, _ := strings.Cut(strings.Join(os.Args[1:], " "), " ")
	switch what {
	case "hello":
		host, _ := os.Hostname()
		fmt.Println("hello from", host)
	case "stay":
		fmt.Println("staying")
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGTERM)
		<-ended
	case "api":
		err = askAPI()
	case "serve":
		err = greet()
	case "get":
		err = get(rest)
	case "extender":
		err = extend()
	case "webhook":
		err = admit(rest)
	default:
		err = fmt.Errorf("usage: testpod hello|stay|api|serve|get URL|extender|webhook NAME")
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// askAPI requests the caller's identity from the API server, at the address and with the token of every pod.
func askAPI() error {
	token, err := os.ReadFile(account + "token")
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	client := &http.Client{
		Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
	}
	url := fmt.Sprintf("https://%s:%s/apis/authentication.k8s.io/v1/selfsubjectreviews",
		os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	body := `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	request, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	fmt.Printf("%s %s\n", response.Status, answer)
	return err
}
