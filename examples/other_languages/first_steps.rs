// The first steps in Rust, without a crate: rustc -l isentropic first_steps.rs
use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_int, c_void};

#[repr(C)]
struct Array {
    struct_size: usize,
    name: *const c_char,
    data: *mut c_void,
    rows: usize,
    cols: usize,
    row_stride: isize,
    col_stride: isize,
    kind: i32,
    reserved: i32,
}

const FLOAT64: i32 = 2;

extern "C" {
    fn isentropic_apply(operation: *const c_char, parameters: *const c_char, arrays: *const Array, count: usize) -> c_int;
    fn isentropic_last_error() -> *const c_char;
}

/// arrays: (name, numbers, rows, cols).
fn apply(operation: &str, parameters: &str, arrays: &mut [(&str, &mut [f64], usize, usize)]) -> Result<(), String> {
    let text = |s: &str| CString::new(s).unwrap();
    let (operation, parameters) = (text(operation), text(parameters));
    let names: Vec<CString> = arrays.iter().map(|one| text(one.0)).collect();
    let mut given = Vec::new();
    for ((_, numbers, rows, cols), name) in arrays.iter_mut().zip(&names) {
        assert_eq!(numbers.len(), *rows * *cols);
        given.push(Array {
            struct_size: std::mem::size_of::<Array>(),
            name: name.as_ptr(),
            data: numbers.as_mut_ptr().cast(),
            rows: *rows,
            cols: *cols,
            row_stride: 0,
            col_stride: 0,
            kind: FLOAT64,
            reserved: 0,
        });
    }
    // Every array has as many numbers as it says, and all outlive the call.
    unsafe {
        match isentropic_apply(operation.as_ptr(), parameters.as_ptr(), given.as_ptr(), given.len()) {
            0 => Ok(()),
            _ => Err(CStr::from_ptr(isentropic_last_error()).to_string_lossy().into_owned()),
        }
    }
}

fn main() {
    let (mut x, mut p, mut entropy) = ([2.0, 1.0, 0.1, -1.0], [0.0; 4], [0.0]);
    apply("entmax", r#"{"alpha": 1.3}"#, &mut [("x", &mut x, 1, 4), ("y", &mut p, 1, 4)]).unwrap();
    apply("entropy", "{}", &mut [("p", &mut p, 1, 4), ("value", &mut entropy, 1, 1)]).unwrap();
    println!("{:.4} {:.4} {:.4} {:.4} entropy {:.4}", p[0], p[1], p[2], p[3], entropy[0]);
    let refused = apply("softmax", r#"{"temperature": -1}"#, &mut [("x", &mut x, 1, 4), ("y", &mut p, 1, 4)]);
    println!("{}", refused.unwrap_err());
}
