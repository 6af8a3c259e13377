// Sources of phub_core, for `verilator -F` and slang's `-F`: paths are relative to this file.
// Packages by name; a module is found in its folder by its file name.
+incdir+pkg
../regs/hub_regs.vlt
pkg/phub_pkg.sv
lib/crc32_pkg.sv
../regs/generated/hub_regs_pkg.sv
../regs/generated/hub_regs.sv
+libext+.sv
-y lib
-y host
-y admit
-y slots
-y aggregate
-y egress
top/phub_core.sv
