/* descriptors.h: what our protos say, as protoc packs it (a google.protobuf.FileDescriptorSet), for reflection. */
#ifndef HOLDFAST_DESCRIPTORS_H
#define HOLDFAST_DESCRIPTORS_H

extern const unsigned char proto_descriptors[];
extern const unsigned long proto_descriptors_len;

#endif
