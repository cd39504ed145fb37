# The first steps in Ruby, by its own Fiddle. ISENTROPIC_LIBRARY is the path of the shared library.
require "fiddle"

LIBRARY = Fiddle.dlopen(ENV.fetch("ISENTROPIC_LIBRARY", "libisentropic.so"))
POINTER = Fiddle::TYPE_VOIDP
APPLY = Fiddle::Function.new(LIBRARY["isentropic_apply"], [POINTER, POINTER, POINTER, Fiddle::TYPE_SIZE_T], Fiddle::TYPE_INT)
LAST_ERROR = Fiddle::Function.new(LIBRARY["isentropic_last_error"], [], POINTER)
SIZE = 64
FLOAT64 = 2

# arrays: name => [packed float64, rows, cols]
def isentropic_apply(operation, parameters, arrays)
  names = arrays.keys.map { |name| Fiddle::Pointer[name] }
  packed = arrays.values.zip(names).map do |(data, rows, cols), name|
    [SIZE, name.to_i, Fiddle::Pointer[data].to_i, rows, cols, 0, 0, FLOAT64, 0].pack("JJJJJjjll")
  end.join
  raise LAST_ERROR.call.to_s unless APPLY.call(operation, parameters, packed, arrays.size).zero?
end

x = [2.0, 1.0, 0.1, -1.0].pack("d*")
p = [0.0].pack("d") * 4
entropy = [0.0].pack("d")
isentropic_apply("entmax", '{"alpha": 1.3}', "x" => [x, 1, 4], "y" => [p, 1, 4])
isentropic_apply("entropy", nil, "p" => [p, 1, 4], "value" => [entropy, 1, 1])
puts format("%.4f %.4f %.4f %.4f entropy %.4f", *p.unpack("d4"), *entropy.unpack("d"))
begin
  isentropic_apply("softmax", '{"temperature": -1}', "x" => [x, 1, 4], "y" => [p, 1, 4])
rescue RuntimeError => error
  puts error.message
end
