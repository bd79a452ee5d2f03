# pve-autoscaler guest script: build-ready
# Says whether the first boot is over. Reads only.
state=ready
case $(cloud-init status 2>/dev/null) in
  *'status: running'* | *'status: not'*) state=booting ;;
esac
echo "state=$state"
