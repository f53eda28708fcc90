// SPDX-License-Identifier: Apache-2.0

// The program of the end-to-end tests' containers: says as JSON what a container can see of GPUs, and
// tries to get at them against the rules. Static, so that its image holds nothing else.
package main

import (
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Report is what the probe prints.
type Report struct {
	Devices     []string          // /dev/nvidia*
	Driver      []string          // files of the driver
	Environment map[string]string // NVIDIA_*, TESSERA_* and ALIYUN_*
	LdCache     int64             // size of /etc/ld.so.cache, -1 if there is none
	OpenErrors  map[string]string // what open says of each device
	Answer      string            // to the question, or why there is none
}

func main() {
	hold := flag.Duration("hold", 0, "stay this long after the report")
	fail := flag.Bool("fail", false, "end with exit code 1")
	socket := flag.String("ask", "", "a unix socket to send the question to, as tessera-runtime does")
	question := flag.String("question", "", "what to ask there")
	flag.Parse()

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
	if *socket != "" {
		report.Answer = ask(*socket, *question)
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

// ask sends a question behind its length, and returns the answer without it, or what went wrong.
func ask(socket, question string) string {
	connection, err := net.DialTimeout("unix", socket, 5*time.Second)
	if err != nil {
		return err.Error()
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(10 * time.Second))
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
