// The first steps in Go, by cgo: CGO_LDFLAGS="-lisentropic" go run first_steps.go
package main

// #include <isentropic/c.h>
// #include <stdlib.h>
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"
)

type matrix struct {
	name       string
	rows, cols int
	numbers    []float64
}

func apply(operation, parameters string, arrays ...matrix) error {
	// The last error is a thread's own.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	text := func(s string) *C.char { return C.CString(s) }
	given := make([]C.isentropic_array, len(arrays))
	for i, one := range arrays {
		name := text(one.name)
		defer C.free(unsafe.Pointer(name))
		// Go's memory may hold no pointers into Go's memory while C has it.
		data := C.malloc(C.size_t(8 * len(one.numbers)))
		defer C.free(data)
		kept := unsafe.Slice((*float64)(data), len(one.numbers))
		copy(kept, one.numbers)
		numbers := one.numbers
		defer func() { copy(numbers, kept) }()
		given[i].struct_size = C.sizeof_isentropic_array
		given[i].name, given[i].data = name, data
		given[i].rows, given[i].cols = C.size_t(one.rows), C.size_t(one.cols)
		given[i]._type = C.ISENTROPIC_FLOAT64
	}
	name, json := text(operation), text(parameters)
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(json))
	if C.isentropic_apply(name, json, &given[0], C.size_t(len(given))) != C.ISENTROPIC_OK {
		return errors.New(C.GoString(C.isentropic_last_error()))
	}
	return nil
}

func main() {
	x := matrix{"x", 1, 4, []float64{2, 1, 0.1, -1}}
	p := matrix{"y", 1, 4, make([]float64, 4)}
	entropy := matrix{"value", 1, 1, make([]float64, 1)}
	if err := apply("entmax", `{"alpha": 1.3}`, x, p); err != nil {
		panic(err)
	}
	if err := apply("entropy", "{}", matrix{"p", 1, 4, p.numbers}, entropy); err != nil {
		panic(err)
	}
	for _, one := range p.numbers {
		fmt.Printf("%.4f ", one)
	}
	fmt.Printf("entropy %.4f\n", entropy.numbers[0])
	if err := apply("softmax", `{"temperature": -1}`, x, p); err != nil {
		fmt.Println(err)
	}
}
