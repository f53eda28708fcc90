// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"path"
	"sort"
	"strings"
)

const (
	ldCachePath   = "/etc/ld.so.cache"
	ldConfPath    = "/etc/ld.so.conf"
	ldCacheMagic  = "glibc-ld.so.cache1.1"
	littleEndian  = 2
	libc6         = 3      // an ELF library for glibc
	libc6x86_64   = 0x0300 // of the 64-bit x86 ABI
	libc6aarch64  = 0x0a00
	headerLength  = 48
	libraryLength = 24
)

var abi = map[elf.Machine]int32{
	elf.EM_X86_64: libc6 | libc6x86_64, elf.EM_AARCH64: libc6 | libc6aarch64,
}

type cached struct {
	name, file string
	flags      int32
}

// AddLdCache writes an ld.so.cache (glibc ≥ 2.2, little endian) over the shared libraries that the
// image has in folders whose path contains "/lib", as ldconfig would. It also writes an ld.so.conf if the image
// has none, because without this file ldconfig cannot write the cache again. Call it last.
func (b *Builder) AddLdCache() error {
	libraries := map[string]cached{}
	for file, e := range b.entries {
		inLib := strings.Contains(path.Dir(file)+"/", "/lib")
		if !inLib || !strings.Contains(path.Base(file), ".so") || !e.mode.IsRegular() {
			continue
		}
		f, err := elf.NewFile(bytes.NewReader(e.content))
		if err != nil || f.Type != elf.ET_DYN {
			continue
		}
		flags := abi[f.Machine]
		name := path.Base(file)
		if names, _ := f.DynString(elf.DT_SONAME); len(names) > 0 {
			name = names[0]
		}
		// If two files have the same name, the cache lists the file whose path sorts first. So equal
		// images get equal caches.
		if old, ok := libraries[name]; flags != 0 && (!ok || file < old.file) {
			libraries[name] = cached{name, file, flags}
		}
	}
	if len(libraries) == 0 {
		return errors.New("no shared library in the image to make a cache of")
	}
	sorted := make([]cached, 0, len(libraries))
	for _, each := range libraries {
		sorted = append(sorted, each)
	}
	// The loader does a binary search, so the names must be in descending order of its own comparison.
	sort.Slice(sorted, func(i, j int) bool { return compareNames(sorted[i].name, sorted[j].name) > 0 })
	if _, ok := b.entries[ldConfPath]; !ok {
		if err := b.AddBytes(ldConfPath, 0o644, []byte("include /etc/ld.so.conf.d/*.conf\n")); err != nil {
			return err
		}
	}
	return b.AddBytes(ldCachePath, 0o644, encodeLdCache(sorted))
}

func encodeLdCache(libraries []cached) []byte {
	var entries, text bytes.Buffer
	base := headerLength + libraryLength*len(libraries)
	put := func(value any) { binary.Write(&entries, binary.LittleEndian, value) }
	for _, each := range libraries {
		put(each.flags)
		for _, part := range []string{each.name, each.file} {
			put(uint32(base + text.Len()))
			text.WriteString(part + "\x00")
		}
		put(uint32(0)) // kernel version
		put(uint64(0)) // hardware capabilities
	}
	var out bytes.Buffer
	out.WriteString(ldCacheMagic)
	for _, word := range []uint32{uint32(len(libraries)), uint32(text.Len()), littleEndian, 0, 0, 0, 0} {
		binary.Write(&out, binary.LittleEndian, word)
	}
	out.Write(entries.Bytes())
	out.Write(text.Bytes())
	return out.Bytes()
}

// compareNames compares as _dl_cache_libcmp of glibc does: a run of digits counts as a number, and a digit is
// greater than any other character.
func compareNames(a, b string) int {
	isDigit := func(c byte) bool { return c >= '0' && c <= '9' }
	for a != "" && b != "" {
		switch {
		case isDigit(a[0]) && isDigit(b[0]):
			var x, y int
			for ; a != "" && isDigit(a[0]); a = a[1:] {
				x = 10*x + int(a[0]-'0')
			}
			for ; b != "" && isDigit(b[0]); b = b[1:] {
				y = 10*y + int(b[0]-'0')
			}
			if x != y {
				return x - y
			}
		case isDigit(a[0]):
			return 1
		case isDigit(b[0]):
			return -1
		case a[0] != b[0]:
			return int(a[0]) - int(b[0])
		default:
			a, b = a[1:], b[1:]
		}
	}
	return len(a) - len(b)
}
