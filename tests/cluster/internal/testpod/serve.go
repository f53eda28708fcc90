// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"time"
)

const port = ":8080"

// greet answers every request with the pod's name.
func greet() error {
	return http.ListenAndServe(port, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		host, _ := os.Hostname()
		fmt.Fprintln(w, "hello from", host)
	}))
}

// get prints what a server answers. It tries again for a while, because a pod that runs does not always listen yet.
func get(url string) error {
	client := &http.Client{Timeout: time.Minute}
	response, err := client.Get(url)
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		response, err = client.Get(url)
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}

// extend is a scheduler extender that finds every node unfit.
func extend() error {
	return http.ListenAndServe(port, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var args struct{ NodeNames []string }
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		failed := map[string]string{}
		for _, name := range args.NodeNames {
			failed[name] = "the extender wants no pods on " + name
		}
		json.NewEncoder(w).Encode(map[string]any{"NodeNames": []string{}, "FailedNodes": failed})
	}))
}

// admit is an admission webhook that rejects everything, with a certificate for dnsName that its log shows.
func admit(dnsName string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: dnsName}, DNSNames: []string{dnsName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	if err := pem.Encode(os.Stdout, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
		return err
	}
	server := &http.Server{
		Addr: port, Handler: http.HandlerFunc(refuse),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}},
	}
	return server.ListenAndServeTLS("", "")
}

func refuse(w http.ResponseWriter, r *http.Request) {
	var review struct{ Request struct{ UID string } }
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{
		"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
		"response": map[string]any{
			"uid": review.Request.UID, "allowed": false,
			"status": map[string]any{"message": "the webhook in the pod says no"},
		},
	})
}
