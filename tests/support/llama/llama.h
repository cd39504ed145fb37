// The part of llama.cpp's llama.h that isentropic/llama_sampler.h uses, for tests without llama.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

typedef std::int32_t llama_token;
struct llama_token_data {
  llama_token id;
  float logit, p;
};
struct llama_token_data_array {
  llama_token_data* data;
  std::size_t size;
  std::int64_t selected;
  bool sorted;
};

struct llama_sampler;
struct llama_sampler_i {
  const char* (*name)(const llama_sampler*);
  void (*accept)(llama_sampler*, llama_token);
  void (*apply)(llama_sampler*, llama_token_data_array*);
  void (*reset)(llama_sampler*);
  llama_sampler* (*clone)(const llama_sampler*);
  void (*free)(llama_sampler*);
};
struct llama_sampler {
  llama_sampler_i* iface;
  void* ctx;
};
inline llama_sampler* llama_sampler_init(llama_sampler_i* iface, void* ctx) { return new llama_sampler{iface, ctx}; }
}
