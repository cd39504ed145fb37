/* What Node calls: cc -shared -fPIC -I/usr/include/node first_steps_node.c -lisentropic -o first_steps.node */
#include <isentropic/c.h>
#include <node_api.h>
#include <stdlib.h>

/* apply(operation, parameters, [[name, rows, cols, Float64Array], ...]) */
static napi_value apply(napi_env env, napi_callback_info info) {
  size_t argc = 3, length = 0;
  uint32_t count = 0, i;
  napi_value argv[3], one, field;
  char operation[64], parameters[1024], names[8][32];
  isentropic_array arrays[8];
  napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
  napi_get_value_string_utf8(env, argv[0], operation, sizeof operation, &length);
  napi_get_value_string_utf8(env, argv[1], parameters, sizeof parameters, &length);
  napi_get_array_length(env, argv[2], &count);
  if (count > 8) {
    napi_throw_range_error(env, NULL, "at most 8 arrays");
    return NULL;
  }
  for (i = 0; i < count; ++i) {
    uint32_t rows = 0, cols = 0;
    void* data = NULL;
    napi_get_element(env, argv[2], i, &one);
    napi_get_element(env, one, 0, &field);
    napi_get_value_string_utf8(env, field, names[i], sizeof names[i], &length);
    napi_get_element(env, one, 1, &field);
    napi_get_value_uint32(env, field, &rows);
    napi_get_element(env, one, 2, &field);
    napi_get_value_uint32(env, field, &cols);
    napi_get_element(env, one, 3, &field);
    napi_get_typedarray_info(env, field, NULL, &length, &data, NULL, NULL);
    if (length < (size_t)rows * cols) {
      napi_throw_range_error(env, NULL, "an array has fewer than rows x cols numbers");
      return NULL;
    }
    const isentropic_array matrix = {sizeof matrix, names[i], data, rows, cols, 0, 0, ISENTROPIC_FLOAT64, 0};
    arrays[i] = matrix;
  }
  if (isentropic_apply(operation, parameters, arrays, count) != ISENTROPIC_OK) napi_throw_error(env, NULL, isentropic_last_error());
  return NULL;
}

NAPI_MODULE_INIT() {
  napi_value function;
  napi_create_function(env, "apply", NAPI_AUTO_LENGTH, apply, NULL, &function);
  napi_set_named_property(env, exports, "apply", function);
  return exports;
}
