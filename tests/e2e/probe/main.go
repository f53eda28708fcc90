// SPDX-License-Identifier: Apache-2.0

// The program in containers of the end-to-end tests. It prints as JSON which GPUs the container can see, and
// tries to use GPUs against the rules. It is linked statically, so that its image holds nothing else.
package main

import (
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Report is the probe's output.
type Report struct {
	Devices     []string          // /dev/nvidia*
	Driver      []string          // files of the driver
	Environment map[string]string // NVIDIA_*, TESSERA_* and ALIYUN_*
	LdCache     int64             // size of /etc/ld.so.cache, -1 if there is none
	OpenErrors  map[string]string // error of opening each device
	Answer      string            // response to the request, or the error
}

func main() {
	hold := flag.Duration("hold", 0, "stay this long after the report")
	fail := flag.Bool("fail", false, "end with exit code 1")
	address := flag.String("ask", "", "a unix socket to send the question to, as tessera-runtime does, or a URL to which the question is posted")
	question := flag.String("question", "", "the request to send")
	preload := flag.String("preload", "", "a library that the linker loads first into the program of the arguments")
	covered := flag.String("cover", "", "a folder of limits to cover with one without a limit; then run the arguments")
	flag.Parse()
	if *preload != "" {
		panic(syscall.Exec(flag.Arg(0), flag.Args(), append(os.Environ(), "LD_PRELOAD="+*preload)))
	}
	if *covered != "" {
		panic(coverLimits(*covered, flag.Args()))
	}

	report := Report{Environment: map[string]string{}, OpenErrors: map[string]string{}, LdCache: -1}
	report.Devices, _ = filepath.Glob("/dev/nvidia*")
	report.Driver, _ = filepath.Glob("/dev/tessera/*/*")
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "NVIDIA_") || strings.HasPrefix(name, "TESSERA_") || strings.HasPrefix(name, "ALIYUN_") {
			report.Environment[name] = value
		}
	}
	if info, err := os.Stat("/etc/ld.so.cache"); err == nil {
		report.LdCache = info.Size()
	}
	for _, device := range report.Devices {
		file, err := os.OpenFile(device, os.O_RDWR, 0)
		if err != nil {
			report.OpenErrors[device] = err.Error()
			continue
		}
		file.Close()
	}
	switch {
	case strings.HasPrefix(*address, "http"):
		report.Answer = post(*address, *question)
	case *address != "":
		report.Answer = ask(*address, *question)
	}
	text, err := json.Marshal(report)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
	time.Sleep(*hold)
	if *fail {
		os.Exit(1)
	}
}

// coverLimits mounts a tmpfs over the folder, with a copy of the file "limits" in which the memory of the first GPU
// is changed. Then it executes another program, which takes the copy for the agent's file.
func coverLimits(folder string, argv []string) error {
	// gpus[0].memory of Limits in src/limiter/region.h.
	const memory = 80
	text, err := os.ReadFile(filepath.Join(folder, "limits"))
	if err != nil {
		return err
	}
	copy(text[memory:], make([]byte, 8))
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, ""); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "limits"), text, 0o644); err != nil {
		return err
	}
	return syscall.Exec(argv[0], argv, os.Environ())
}

// ask sends a request with its length, and returns the response without it, or the error.
func ask(socket, question string) string {
	connection, err := net.DialTimeout("unix", socket, 30*time.Second)
	if err != nil {
		return err.Error()
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(time.Minute))
	message := binary.LittleEndian.AppendUint32(nil, uint32(len(question)))
	if _, err := connection.Write(append(message, question...)); err != nil {
		return err.Error()
	}
	answer, err := io.ReadAll(connection)
	if len(answer) < 4 {
		return fmt.Sprintf("%d bytes and %v", len(answer), err)
	}
	return string(answer[4:])
}

// post sends the question as JSON without a client certificate, and returns status and body, or the error.
func post(url, question string) string {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	client := http.Client{Timeout: time.Minute, Transport: transport}
	response, err := client.Post(url, "application/json", strings.NewReader(question))
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return response.Status + ": " + string(text)
}
