// SPDX-License-Identifier: Apache-2.0

// The program of the end-to-end tests' containers: says as JSON what a container can see of GPUs, and
// tries to get at them against the rules. Static, so that its image holds nothing else.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Report is what the probe prints.
type Report struct {
	Devices     []string          // /dev/nvidia*
	Driver      []string          // files of the driver
	Environment map[string]string // NVIDIA_* and TESSERA_*
	LdCache     int64             // size of /etc/ld.so.cache, -1 if there is none
	OpenErrors  map[string]string // what open says of each device
}

func main() {
	hold := flag.Duration("hold", 0, "stay this long after the report")
	fail := flag.Bool("fail", false, "end with exit code 1")
	flag.Parse()

	report := Report{Environment: map[string]string{}, OpenErrors: map[string]string{}, LdCache: -1}
	report.Devices, _ = filepath.Glob("/dev/nvidia*")
	report.Driver, _ = filepath.Glob("/dev/tessera/*/*")
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "NVIDIA_") || strings.HasPrefix(name, "TESSERA_") {
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
