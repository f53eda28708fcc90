// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bufio"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// partsOfGlibc are the libraries that AddELF adds beside libc.so.6. NVIDIA's driver, which programs open at run
// time, needs them. Programs no longer name them, because their content has moved to libc.so.6.
var partsOfGlibc = []string{"libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// AddELF adds a program or library at dest. It also adds the files that the dynamic loader would open for it, at
// the same paths as below Root: the interpreter and, recursively, the needed libraries. It does not find
// libraries that a program opens by name at run time; add each of them with AddELF, too.
func (b *Builder) AddELF(source, dest string) error {
	if err := b.AddFile(source, dest, 0o755); err != nil {
		return err
	}
	return b.addNeeded(source, searchPath(b.Root))
}

// object holds the parts of an ELF file that the loader reads.
type object struct {
	interpreter string
	needed      []string
	runpath     []string // $ORIGIN replaced
	machine     elf.Machine
}

func (b *Builder) addNeeded(source string, system []string) error {
	o, err := readObject(source)
	if err != nil {
		return err
	}
	if machine, known := machines[b.Architecture]; known && o.machine != machine {
		return fmt.Errorf("%s is for %s: the image is for %s", source, o.machine, b.Architecture)
	}
	wanted := []string{}
	if o.interpreter != "" {
		wanted = append(wanted, o.interpreter)
	}
	for _, name := range o.needed {
		found, err := b.findLibrary(name, o, system)
		if err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
		wanted = append(wanted, found)
		if name == "libc.so.6" {
			for _, part := range partsOfGlibc {
				wanted = append(wanted, filepath.Join(filepath.Dir(found), part))
			}
		}
	}
	for _, file := range wanted {
		if _, known := b.entries[path.Clean(file)]; known {
			continue
		}
		if err := b.AddFile(b.Root+file, file, 0o755); err != nil {
			return err
		}
		if err := b.addNeeded(b.Root+file, system); err != nil {
			return err
		}
	}
	return nil
}

func readObject(file string) (*object, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	defer f.Close()
	o := &object{machine: f.Machine}
	for _, program := range f.Progs {
		if program.Type == elf.PT_INTERP {
			name, err := io.ReadAll(program.Open())
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			o.interpreter = strings.TrimRight(string(name), "\x00")
		}
	}
	if o.needed, err = f.ImportedLibraries(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	origin, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return nil, err
	}
	for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
		values, _ := f.DynString(tag)
		for _, value := range values {
			for _, dir := range strings.Split(value, ":") {
				dir = strings.NewReplacer("$ORIGIN", origin, "${ORIGIN}", origin).Replace(dir)
				o.runpath = append(o.runpath, dir)
			}
		}
	}
	return o, nil
}

// findLibrary returns the path of a needed library below Root.
func (b *Builder) findLibrary(name string, user *object, system []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	dirs := append(append([]string{}, user.runpath...), system...)
	for _, dir := range dirs {
		file := filepath.Join(dir, name)
		if f, err := elf.Open(b.Root + file); err == nil {
			machine := f.Machine
			f.Close()
			if machine == user.machine {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("library %s is in none of %s", name, strings.Join(dirs, ", "))
}

// searchPath returns the folders in /etc/ld.so.conf, and then the folders that the loader always searches.
func searchPath(root string) []string {
	dirs := readLdConf(root, "/etc/ld.so.conf")
	return append(dirs, "/lib64", "/usr/lib64", "/lib", "/usr/lib")
}

func readLdConf(root, file string) []string {
	f, err := os.Open(root + file)
	if err != nil {
		return nil
	}
	defer f.Close()
	var dirs []string
	for scan := bufio.NewScanner(f); scan.Scan(); {
		line, _, _ := strings.Cut(scan.Text(), "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && fields[0] == "include":
			included, _ := filepath.Glob(root + fields[1])
			for _, each := range included {
				dirs = append(dirs, readLdConf(root, strings.TrimPrefix(each, root))...)
			}
		case len(fields) == 1:
			dirs = append(dirs, fields[0])
		}
	}
	return dirs
}
