-- The first steps in LuaJIT. ISENTROPIC_LIBRARY is where the shared library is, if not where the system looks.
local ffi = require("ffi")
ffi.cdef [[
typedef struct { size_t struct_size; const char* name; void* data; size_t rows, cols; ptrdiff_t row_stride, col_stride;
                 int32_t type, reserved; } isentropic_array;
int isentropic_apply(const char* operation, const char* parameters, const isentropic_array* arrays, size_t count);
const char* isentropic_last_error(void);
]]
local isentropic = ffi.load(os.getenv("ISENTROPIC_LIBRARY") or "isentropic")
local FLOAT64 = 2

local function apply(operation, parameters, given)
  local arrays, keep = ffi.new("isentropic_array[?]", #given), {}
  for i, one in ipairs(given) do
    local name, data, rows, cols = unpack(one)
    keep[i] = name  -- alive as long as the call
    arrays[i - 1] = { ffi.sizeof("isentropic_array"), name, data, rows, cols, 0, 0, FLOAT64, 0 }
  end
  if isentropic.isentropic_apply(operation, parameters, arrays, #given) ~= 0 then
    error(ffi.string(isentropic.isentropic_last_error()), 0)
  end
end

local x = ffi.new("double[4]", { 2.0, 1.0, 0.1, -1.0 })
local p, entropy = ffi.new("double[4]"), ffi.new("double[1]")
apply("entmax", '{"alpha": 1.3}', { { "x", x, 1, 4 }, { "y", p, 1, 4 } })
apply("entropy", nil, { { "p", p, 1, 4 }, { "value", entropy, 1, 1 } })
print(string.format("%.4f %.4f %.4f %.4f entropy %.4f", p[0], p[1], p[2], p[3], entropy[0]))
print(select(2, pcall(apply, "softmax", '{"temperature": -1}', { { "x", x, 1, 4 }, { "y", p, 1, 4 } })))
